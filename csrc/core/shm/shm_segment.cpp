#include "core/shm/shm_segment.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <numeric>

namespace syntony {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxDescriptors = 253;  // SCM_MAX_FD: what one message can carry

std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

struct Hello {
  Token token;
  std::uint32_t rank;
};

[[noreturn]] void refuse(const std::string& what) { throw Error(Error::Kind::system, system_sentence(what)); }

UniqueFd unix_socket() {
  UniqueFd socket_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket_fd.get() < 0) refuse("cannot open a Unix socket");
  return socket_fd;
}

std::pair<sockaddr_un, socklen_t> abstract(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data(), std::min(address.size(), sizeof(name.sun_path) - 1));
  return {name, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size())};
}

bool readable_before(int fd, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) refuse("poll failed");
    if (left <= 0) return false;
  }
}

// The control message buffer for up to kMaxDescriptors descriptors.
union DescriptorBuffer {
  std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> bytes;
  cmsghdr alignment;
};

void send_with(int socket_fd, std::span<const std::byte> payload, std::span<const int> descriptors) {
  DescriptorBuffer buffer{};
  iovec part{const_cast<std::byte*>(payload.data()), payload.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(control), descriptors.data(), descriptors.size_bytes());
  if (::sendmsg(socket_fd, &message, MSG_NOSIGNAL) < 0) refuse("cannot hand memory to a rank of this host");
}

/// Returns the bytes received (0: the other side closed) and the descriptors that came with them.
std::pair<std::size_t, std::vector<UniqueFd>> receive_with(int socket_fd, std::span<std::byte> payload) {
  DescriptorBuffer buffer{};
  iovec part{payload.data(), payload.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes.data();
  message.msg_controllen = buffer.bytes.size();
  const ssize_t received = ::recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
  if (received < 0) refuse("cannot receive the memory of this host's group");
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> raw(count);
    std::memcpy(raw.data(), CMSG_DATA(control), count * sizeof(int));
    for (const int fd : raw) descriptors.emplace_back(fd);
  }
  return {static_cast<std::size_t>(received), std::move(descriptors)};
}

}  // namespace

std::string ShmSegment::fresh_address() {
  const Token token = random_token();
  return "syntony-" + std::to_string(token[0]) + "-" + std::to_string(token[1]);
}

UniqueFd ShmSegment::listen(const std::string& address) {
  UniqueFd listener = unix_socket();
  const auto [name, length] = abstract(address);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
    refuse("cannot name a Unix socket");
  if (::listen(listener.get(), SOMAXCONN) != 0) refuse("cannot listen on a Unix socket");
  return listener;
}

ShmSegment::ShmSegment(const ShmMeeting& meeting, const UniqueFd& listener, const StreamShape& shape,
                       Clock::time_point deadline)
    : shape_(shape), ranks_(meeting.ranks), local_(shape.ranks, 0), doorbells_(meeting.ranks.size()) {
  if (ranks_.size() >= kMaxDescriptors) {
    throw Error(Error::Kind::invalid,
                "a host can have at most 252 ranks in one group, this one has " + std::to_string(ranks_.size()));
  }
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) local_[ranks_[i]] = i;
  stream_bytes_ = pages(kCacheLine + shape_.depth * (sizeof(SlotLine) + shape_.slot_bytes));
  posts_offset_ = pages(sizeof(AbortRecord) + ranks_.size() * sizeof(BoardLine));
  stages_offset_ = posts_offset_ + pages(ranks_.size() * kPostSlots * sizeof(Post));
  streams_offset_ = stages_offset_ + pages(ranks_.size() * kPriorities * 2 * sizeof(StageBuffer));
  bytes_ = streams_offset_ + ranks_.size() * ranks_.size() * shape_.channels * shape_.windows * stream_bytes_;
  if (meeting.rank == ranks_.front()) {
    create(meeting, listener, deadline);
  } else {
    join(meeting, deadline);
  }
  map();
}

ShmSegment::~ShmSegment() { ::munmap(base_, bytes_); }

void ShmSegment::create(const ShmMeeting& meeting, const UniqueFd& listener, Clock::time_point deadline) {
  memory_ = UniqueFd(::memfd_create("syntony", MFD_CLOEXEC));
  if (memory_.get() < 0) refuse("cannot create shared memory");
  if (::ftruncate(memory_.get(), static_cast<off_t>(bytes_)) != 0) refuse("cannot size shared memory");
  doorbells_[0] = UniqueFd(::dup(meeting.doorbell));

  std::vector<UniqueFd> peers(ranks_.size());
  for (std::size_t missing = ranks_.size() - 1; missing > 0;) {
    if (!readable_before(listener.get(), deadline)) {
      std::vector<int> late;
      std::string names;
      for (std::size_t i = 1; i < ranks_.size(); ++i) {
        if (peers[i].get() >= 0) continue;
        late.push_back(static_cast<int>(ranks_[i]));
        names += (names.empty() ? "" : ", ") + std::to_string(ranks_[i]);
      }
      throw Error(Error::Kind::timeout, "rank(s) " + names + " did not come to share this host's memory in time", late);
    }
    UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0) continue;
    if (!readable_before(peer.get(), std::min(deadline, Clock::now() + std::chrono::seconds(5)))) continue;
    Hello hello{};
    auto [bytes, descriptors] = receive_with(peer.get(), std::as_writable_bytes(std::span(&hello, 1)));
    const auto place = std::ranges::find(ranks_, hello.rank);
    const bool stranger = bytes != sizeof(hello) || hello.token != meeting.token || descriptors.size() != 1 ||
                          place == ranks_.end() || place == ranks_.begin();
    if (stranger) continue;
    const auto i = static_cast<std::size_t>(place - ranks_.begin());
    if (peers[i].get() < 0) --missing;
    peers[i] = std::move(peer);
    doorbells_[i] = std::move(descriptors[0]);
  }

  std::vector<int> handed{memory_.get()};
  for (const UniqueFd& doorbell : doorbells_) handed.push_back(doorbell.get());
  for (std::size_t i = 1; i < peers.size(); ++i) {
    send_with(peers[i].get(), std::as_bytes(std::span(&meeting.token, 1)), handed);
  }
}

void ShmSegment::join(const ShmMeeting& meeting, Clock::time_point deadline) {
  const UniqueFd leader = unix_socket();
  const auto [name, length] = abstract(meeting.address);
  if (::connect(leader.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    refuse("rank " + std::to_string(ranks_.front()) + " of this host cannot be reached");
  }
  const Hello hello{meeting.token, meeting.rank};
  send_with(leader.get(), std::as_bytes(std::span(&hello, 1)), std::array{meeting.doorbell});
  Token answer{};
  const std::string missing = "rank " + std::to_string(ranks_.front()) + " of this host did not hand out its memory";
  if (!readable_before(leader.get(), deadline)) {
    throw Error(Error::Kind::timeout, missing + " in time", {static_cast<int>(ranks_.front())});
  }
  auto [bytes, descriptors] = receive_with(leader.get(), std::as_writable_bytes(std::span(&answer, 1)));
  if (bytes != sizeof(answer) || answer != meeting.token || descriptors.size() != 1 + ranks_.size()) {
    throw Error(Error::Kind::system, missing + ": its answer is not one", {static_cast<int>(ranks_.front())});
  }
  memory_ = std::move(descriptors[0]);
  for (std::size_t i = 0; i < ranks_.size(); ++i) doorbells_[i] = std::move(descriptors[1 + i]);
}

void ShmSegment::map() {
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
  if (memory == MAP_FAILED) refuse("cannot map " + std::to_string(bytes_) + " bytes of shared memory");
  base_ = static_cast<std::byte*>(memory);
}

// A fresh memfd reads as zeros, which is the initial state of every atomic and record in it.
AbortRecord& ShmSegment::abort_record() const { return *reinterpret_cast<AbortRecord*>(base_); }

BoardLine& ShmSegment::board(std::uint32_t rank) const {
  return reinterpret_cast<BoardLine*>(base_ + sizeof(AbortRecord))[local_[rank]];
}

Post& ShmSegment::post(std::uint32_t rank, std::size_t slot) const {
  return reinterpret_cast<Post*>(base_ + posts_offset_)[local_[rank] * kPostSlots + slot];
}

StageBuffer& ShmSegment::stage_buffer(std::uint32_t rank, Priority priority, std::uint64_t parity) const {
  const std::size_t pair = local_[rank] * kPriorities + index_of(priority);
  return reinterpret_cast<StageBuffer*>(base_ + stages_offset_)[pair * 2 + parity];
}

std::byte* ShmSegment::stream(std::uint32_t destination, std::uint32_t source, std::uint32_t channel,
                              std::uint32_t window) const {
  const std::size_t pair = local_[destination] * ranks_.size() + local_[source];
  return base_ + streams_offset_ + ((pair * shape_.channels + channel) * shape_.windows + window) * stream_bytes_;
}

void ShmSegment::ring(std::uint32_t rank) const {
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) means that the doorbell is already ringing.
  [[maybe_unused]] const ssize_t written = ::write(doorbells_[local_[rank]].get(), &one, sizeof(one));
}

}  // namespace syntony

#include "core/shm/shm_segment.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>

#include "core/process/host.hpp"
#include "core/shm/memory_file.hpp"
#include "core/shm/process_watch.hpp"
#include "core/shm/shm_stream_memory.hpp"
#include "core/shm/unix_socket.hpp"

namespace syntony {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kArrivalInterval{200};  // between checks of processes that have not arrived yet

std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// If a container's rules forbid shared memory, ranks can use TCP instead.
[[noreturn]] void refuse(const std::string& what) {
  const bool forbidden = errno == EPERM || errno == EACCES || errno == ENOSYS;
  throw Error(Error::Kind::system,
              system_sentence(what) +
                  (forbidden ? "; if this host's rules should stay, give every rank a SYNTONY_HOST of its own: "
                               "they then meet over TCP"
                             : ""));
}

/// The process at the other end according to the kernel: for the connecting side the listener, and vice versa.
pid_t process_at(const UniqueFd& connection) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    refuse("cannot ask which process is at the other end of a Unix socket");
  }
  return credentials.pid;
}

bool readable_before(int fd, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) refuse("poll failed");
    if (left <= 0) return false;
  }
}

// The control message buffer for one descriptor.
union DescriptorBuffer {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
  cmsghdr alignment;
};

/// False, with errno set, if the system refuses.
bool send_with(const UniqueFd& socket, std::uint64_t payload, int descriptor) {
  DescriptorBuffer buffer{};
  iovec part{&payload, sizeof(payload)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes.data();
  message.msg_controllen = buffer.bytes.size();
  cmsghdr* control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof(int));
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

struct Received {
  std::uint64_t payload = 0;
  UniqueFd descriptor{};  // none if the other side has closed or sent none, or the system refused it
  int error = 0;          // the reason for a refusal
};

Received receive_with(const UniqueFd& socket) {
  std::uint64_t payload = 0;
  DescriptorBuffer buffer{};
  iovec part{&payload, sizeof(payload)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes.data();
  message.msg_controllen = buffer.bytes.size();
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return {.error = errno};
  const cmsghdr* control = CMSG_FIRSTHDR(&message);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
    const bool came = received > 0 && (message.msg_flags & MSG_CTRUNC) != 0;  // no number was left for it
    return {.error = came ? EMFILE : 0};
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof(int));
  return {.payload = payload, .descriptor = UniqueFd(descriptor)};
}

/// The lowest rank's side: hands the memory to the other ranks' processes as they arrive.
class Handout {
 public:
  Handout(std::span<const ShmMember> members, int memory, std::uint64_t bytes) : memory_(memory), bytes_(bytes) {
    for (const ShmMember& member : members.subspan(1)) missing_.emplace_back(member, ProcessWatch(member.process));
  }

  void run(const UniqueFd& entrance, Clock::time_point deadline) {
    while (!missing_.empty()) {
      if (readable_before(entrance.get(), std::min(deadline, Clock::now() + kArrivalInterval))) {
        receive(entrance);
      } else if (Clock::now() >= deadline) {
        throw Error(Error::Kind::timeout, "rank(s) " + names() + " did not come to share this host's memory in time",
                    ranks());
      } else {
        require_alive();
      }
    }
  }

 private:
  void receive(const UniqueFd& entrance) {
    UniqueFd guest(::accept4(entrance.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;  // it is already gone
      if (!make_way()) refuse("cannot receive rank(s) " + names() + " of this host");
      return;
    }
    const pid_t process = process_at(guest);
    const auto member = std::ranges::find(missing_, process, [](const auto& one) { return one.first.process; });
    if (member == missing_.end()) return;  // a stranger
    while (!send_with(guest, bytes_, memory_)) {
      if (errno == EINTR) continue;
      if (errno == EPIPE || errno == ECONNRESET) break;  // it has ended, or has failed and will report it
      if (errno != ETOOMANYREFS || !make_way()) {
        refuse("cannot hand this host's memory to rank " + std::to_string(member->first.rank));
      }
    }
    missing_.erase(member);
    served_.push_back(std::move(guest));
  }

  /// The system limits open descriptors as well as those sent but not yet received: waits until the guest served first
  /// has received its descriptor. False if there is none.
  bool make_way() {
    if (served_.empty()) return false;
    readable_before(served_.front().get(), Clock::now() + std::chrono::seconds(1));
    served_.pop_front();
    return true;
  }

  void require_alive() {
    for (auto& [member, watch] : missing_) {
      if (!watch.ended()) continue;
      throw Error(Error::Kind::dead,
                  "rank " + std::to_string(member.rank) + " (process " + std::to_string(member.process) +
                      ") ended while the group was formed",
                  {static_cast<int>(member.rank)});
    }
  }

  [[nodiscard]] std::vector<int> ranks() const {
    std::vector<int> late;
    for (const auto& [member, _] : missing_) late.push_back(static_cast<int>(member.rank));
    return late;
  }
  [[nodiscard]] std::string names() const {
    std::string text;
    for (const int rank : ranks()) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
  }

  int memory_;
  std::uint64_t bytes_;
  std::vector<std::pair<ShmMember, ProcessWatch>> missing_;
  std::deque<UniqueFd> served_;  // a guest closes its end once it has the memory
};

}  // namespace

UniqueFd ShmSegment::listen(const std::string& entrance) {
  UniqueFd listener = unix_socket(SOCK_SEQPACKET);
  bind_to(listener, entrance);
  if (::listen(listener.get(), SOMAXCONN) != 0) refuse("cannot listen on a Unix socket");
  return listener;
}

ShmSegment::ShmSegment(std::span<const ShmMember> members, std::uint32_t rank, UniqueFd entrance,
                       const Doorbell& doorbell, const StreamShape& shape, Clock::time_point deadline)
    : shape_(shape), local_(shape.ranks, 0), doorbell_(doorbell) {
  if (members.size() > kMostRanksOfHost) {
    throw Error(Error::Kind::invalid, "a host can have at most " + std::to_string(kMostRanksOfHost) +
                                          " ranks in one group, this one has " + std::to_string(members.size()));
  }
  for (const ShmMember& member : members) {
    local_[member.rank] = static_cast<std::uint32_t>(ranks_.size());
    ranks_.push_back(member.rank);
    doorbells_.push_back(member.doorbell);
  }
  stream_bytes_ = pages(ShmStreamMemory::bytes(shape_));
  posts_offset_ = pages(sizeof(AbortRecord) + ranks_.size() * sizeof(BoardLine));
  stages_offset_ = posts_offset_ + pages(ranks_.size() * kPostSlots * sizeof(Post));
  streams_offset_ = stages_offset_ + pages(ranks_.size() * kPriorities * 2 * sizeof(StageBuffer));
  bytes_ = streams_offset_ + ranks_.size() * ranks_.size() * shape_.channels * shape_.windows * stream_bytes_;
  if (rank == ranks_.front()) {
    create(members, entrance, deadline);
  } else {
    entrance.reset();
    join(members.front(), deadline);
  }
  map();
}

ShmSegment::~ShmSegment() { ::munmap(base_, bytes_); }

void ShmSegment::create(std::span<const ShmMember> members, const UniqueFd& entrance, Clock::time_point deadline) {
  memory_ = memory_file("syntony");
  if (!memory_) refuse("cannot create shared memory");
  if (::ftruncate(memory_.get(), static_cast<off_t>(bytes_)) != 0) refuse("cannot size shared memory");
  Handout(members, memory_.get(), bytes_).run(entrance, deadline);
}

void ShmSegment::join(const ShmMember& leader, Clock::time_point deadline) {
  const std::string who = "rank " + std::to_string(leader.rank) + " of this host";
  const std::vector<int> guilty{static_cast<int>(leader.rank)};
  const auto late = [&] { return Error(Error::Kind::timeout, who + " did not hand out its memory in time", guilty); };
  const UniqueFd socket = unix_socket(SOCK_SEQPACKET);
  // connect() waits while the leader's queue is full, for at most the send timeout.
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - Clock::now());
  if (left.count() <= 0) throw late();
  const timeval limit{left.count() / 1'000'000, left.count() % 1'000'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const UnixName name(leader.entrance);
  while (::connect(socket.get(), name.get(), name.length) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) throw late();
    throw Error(Error::Kind::system, system_sentence(who + " cannot be reached"), guilty);
  }
  if (process_at(socket) != leader.process) {
    throw Error(Error::Kind::system, who + " cannot be reached: another process answers in its place", guilty);
  }
  if (!readable_before(socket.get(), deadline)) throw late();
  auto [bytes, memory, error] = receive_with(socket);
  if (error != 0 && error != ECONNRESET) {  // else the leader is gone
    errno = error;
    refuse("cannot receive the memory of this host's group");
  }
  if (!memory || bytes != bytes_) throw Error(Error::Kind::system, who + " did not hand out its memory", guilty);
  memory_ = std::move(memory);
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

}  // namespace syntony

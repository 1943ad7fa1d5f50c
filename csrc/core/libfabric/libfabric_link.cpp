#include "core/libfabric/libfabric_link.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace syntony {

LibfabricLink::LibfabricLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank,
                             LibfabricEndpoint& endpoint, const std::string& address)
    : MessageLink(shape, identity, rank),
      endpoint_(endpoint),
      address_(address),
      windows_(shape.windows),
      slot_bytes_(shape.slot_bytes) {}

fi_addr_t LibfabricLink::peer_address() {
  if (peer_ != FI_ADDR_UNSPEC) return peer_;
  try {
    peer_ = endpoint_.peer(address_);
  } catch (const Error& error) {
    throw Error(error.kind(), peer() + " cannot be reached: " + error.what(), {static_cast<int>(rank())});
  }
  return peer_;
}

// Payloads in flight to one rank have distinct tags: a stream has far fewer slots than this has numbers. Some
// providers' tags have 48 bits.
std::uint64_t LibfabricLink::tag_of(std::uint32_t from, const FramePrefix& prefix) const {
  constexpr unsigned kNumber = 16, kStream = 12;
  const std::uint64_t stream = std::uint64_t{prefix.channel} * windows_ + prefix.window;
  const std::uint64_t number = prefix.number & ((1U << kNumber) - 1);
  return (std::uint64_t{from} << (kStream + kNumber)) | (stream << kNumber) | number;
}

// ---- sending

LibfabricLink::Task& LibfabricLink::task(What what, const FramePrefix& prefix) {
  if (spare_.empty()) {
    tasks_.push_back(std::make_unique<Task>(*this));
    spare_.push_back(tasks_.back().get());
  }
  Task& task = *spare_.back();
  spare_.pop_back();
  task.what = what;
  task.prefix = prefix;
  return task;
}

void LibfabricLink::write_message(Task& task, const MessageHeader& message, const std::byte* payload,
                                  std::size_t length) {
  if (task.message.empty()) task.message.resize(sizeof(MessageHeader) + kShort);
  std::memcpy(task.message.data(), &message, message.bytes());
  if (length > 0) std::memcpy(task.message.data() + message.bytes(), payload, length);
  task.message_bytes = message.bytes() + length;
}

void LibfabricLink::post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) {
  [[maybe_unused]] const fi_addr_t known = peer_address();  // may throw, before anything has begun
  last_ = key;
  const FramePrefix prefix = data_prefix(key, number);
  FramePrefix credit = prefix;
  credit.kind = FramePrefix::kCredit;
  MessageHeader message = addressed(prefix);
  message.credit = credit_to_go_along(key);
  message.header = header;
  sender(key).hold(number);
  const bool whole = header.length <= kShort;
  Task& first = task(What::message, whole ? prefix : credit);
  write_message(first, message, payload, whole ? header.length : 0);
  start(first);
  if (whole) return;
  Task& second = task(What::payload, prefix);
  second.slot = const_cast<std::byte*>(payload);  // NOLINT(cppcoreguidelines-pro-type-const-cast): read only
  second.length = header.length;
  second.tag = tag_of(identity().rank, prefix);
  start(second);
}

void LibfabricLink::send_credit(const FramePrefix& credit) {
  Task& message = task(What::message, credit);
  write_message(message, addressed(credit), nullptr, 0);
  start(message);
}

// Giving a credit twice is harmless: this one is for a stream on which this rank has sent.
bool LibfabricLink::fence() {
  Task& fence = task(What::fence, credit_prefix(receiver(last_)));
  write_message(fence, addressed(fence.prefix), nullptr, 0);
  start(fence);
  return true;
}

void LibfabricLink::start(Task& task) {
  if (task.what == What::message || task.what == What::payload) taken(task.prefix);
  const long result = waiting_.empty() ? attempt(task) : -FI_EAGAIN;  // in order
  if (result == -FI_EAGAIN) {
    waiting_.push_back(&task);
  } else if (result != 0) {
    done(task, static_cast<int>(-result), 0);
  }
}

long LibfabricLink::attempt(Task& task) {
  fid_ep* const endpoint = endpoint_.handle();
  // A slot's capacity is a power of two, so there are few sizes to register.
  const std::size_t room = std::min(std::bit_ceil(std::size_t{task.length}), std::size_t{slot_bytes_});
  void* const described = task.what == What::payload || task.what == What::fetch
                              ? endpoint_.describe(task.slot, room)
                              : endpoint_.describe(task.message.data(), task.message.size());
  switch (task.what) {
    case What::message:
      return fi_send(endpoint, task.message.data(), task.message_bytes, described, peer_address(), &task.ticket);
    case What::payload:
      return fi_tsend(endpoint, task.slot, task.length, described, peer_address(), task.tag, &task.ticket);
    case What::fetch:
      return fi_trecv(endpoint, task.slot, task.length, described, FI_ADDR_UNSPEC, task.tag, 0, &task.ticket);
    case What::fence:
      break;
  }
  const iovec bytes{.iov_base = task.message.data(), .iov_len = task.message_bytes};
  void* descriptions = described;
  fi_msg message{};
  message.msg_iov = &bytes;
  message.desc = &descriptions;
  message.iov_count = 1;
  message.addr = peer_address();
  message.context = &task.ticket;
  return fi_sendmsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

bool LibfabricLink::retry() {
  bool moved = false;
  while (!waiting_.empty()) {
    Task& task = *waiting_.front();
    const long result = lost() ? -FI_ECANCELED : attempt(task);
    if (result == -FI_EAGAIN) return moved;
    waiting_.pop_front();
    if (result != 0) done(task, static_cast<int>(-result), 0);
    moved = true;
  }
  return moved;
}

void LibfabricLink::done(Task& task, int error, std::size_t bytes) {
  if (error != 0 && failure_ == 0) failure_ = error;
  switch (task.what) {
    case What::message:
    case What::payload:
      done_with(task.prefix, error != 0);
      break;
    case What::fence:
      fenced();
      break;
    case What::fetch:
      if (error != 0 || lost()) break;
      if (bytes == task.length) {
        arrived(task.prefix);
      } else {
        refuse();
      }
  }
  spare_.push_back(&task);
}

// ---- receiving

void LibfabricLink::take(const MessageHeader& message, std::span<const std::byte> payload) {
  const bool apart = message.prefix.kind == FramePrefix::kData && payload.empty() && message.header.length > kShort;
  std::byte* const slot = believe(message, apart ? message.header.length : payload.size());
  if (slot == nullptr) return;
  if (apart) {
    Task& fetch = task(What::fetch, message.prefix);
    fetch.slot = slot;
    fetch.length = message.header.length;
    fetch.tag = tag_of(rank(), message.prefix);
    start(fetch);
  } else {
    if (!payload.empty()) std::memcpy(slot, payload.data(), payload.size());
    arrived(message.prefix);
  }
}

// ---- ends

void LibfabricLink::settle() {
  if (failure_ != 0 && !lost()) {
    lose("lost its connection (" + endpoint_.library().sentence(failure_) + ")", undelivered());
  }
}

}  // namespace syntony

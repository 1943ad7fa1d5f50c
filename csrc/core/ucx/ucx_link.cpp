#include "core/ucx/ucx_link.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/ucx/ucx_transport.hpp"

namespace syntony {

UcxLink::UcxLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, UcxWorker& worker,
                 const std::string& address)
    : MessageLink(shape, identity, rank), worker_(worker), address_(address) {}

ucp_ep_h UcxLink::endpoint() {
  if (endpoint_ != nullptr) return endpoint_;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address_.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* link, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxLink*>(link)->failure_ = status;
  };
  params.err_handler.arg = this;
  const ucs_status_t status = worker_.library().ep_create(worker_.handle(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    throw Error(Error::Kind::system,
                peer() + " cannot be reached by " + worker_.name() + ": " + worker_.library().sentence(status),
                {static_cast<int>(rank())});
  }
  tell_what_it_reads();
  return endpoint_;
}

// Only the receiver knows: which memory UCX can map depends on who of the two has connected first.
void UcxLink::tell_what_it_reads() {
  if (worker_.memory().map(endpoint_, UcxWorker::sample_of(address_)) == nullptr) return;
  send_nothing(UcxTransport::kReads);
}

// ---- sending

UcxLink::Parcel& UcxLink::parcel(const FramePrefix& prefix) {
  if (spare_.empty()) {
    parcels_.push_back(std::make_unique<Parcel>());
    parcels_.back()->link = this;
    spare_.reserve(parcels_.size());  // so that returning one needs no allocation
    spare_.push_back(parcels_.back().get());
  }
  Parcel& parcel = *spare_.back();
  spare_.pop_back();
  parcel.message = addressed(prefix);
  return parcel;
}

void UcxLink::post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) {
  if (const UcxStream* stream = lent(key)) {
    const ShmStreamMemory memory = stream->memory();
    std::byte* const place = memory.payload(number);
    if (payload != place && header.length > 0) std::memcpy(place, payload, header.length);
    SlotLine& slot = memory.slot(number);
    slot.header = header;
    slot.stamp.store(number + 1, std::memory_order_release);
    news_ = &stream->receiver();
    return;
  }
  const ucp_ep_h to = endpoint();  // may throw, before anything has begun
  Parcel& frame = parcel(data_prefix(key, number));
  frame.message.credit = credit_to_go_along(key);
  frame.message.header = header;
  sender(key).hold(number);
  send(to, UcxTransport::kMessage, frame, {payload, header.length});
}

void UcxLink::pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
                   std::byte* slot) {
  if (lent(key) == nullptr) return MessageLink::pass(key, number, header, payload, slot);
  if (header.length > 0) shown_copy_(slot, payload, header.length);
  post(key, number, header, slot);
}

UcxStream UcxLink::stream_in(std::byte* memory) const {
  return {.base = memory, .depth = shape().depth, .slot_bytes = shape().slot_bytes};
}

const UcxStream* UcxLink::lent(StreamKey key) const {
  if (lent_.empty() || lent_[index(key)].base == nullptr) return nullptr;
  return &lent_[index(key)];
}

std::byte* UcxLink::lent_room(StreamKey key, std::uint64_t number) {
  if (!lends_) return nullptr;
  lent_.resize(std::size_t{shape().channels} * shape().windows);
  UcxStream& stream = lent_[index(key)];
  if (stream.base == nullptr) stream = lend(key, number);
  return stream.base == nullptr ? nullptr : stream.memory().payload(number);
}

UcxStream UcxLink::lend(StreamKey key, std::uint64_t first) {
  const ucp_ep_h to = endpoint();
  const UcxMemory::Shared memory = worker_.memory().share(UcxStream::bytes(shape()));
  lends_ = UcxStream::fits(memory.begin);
  if (!lends_) return {};
  const UcxStream stream = stream_in(memory.begin);
  stream.begin();
  ours_.push_back(&stream.sender());
  send(to, UcxTransport::kLent, parcel(data_prefix(key, first)), std::as_bytes(std::span(memory.where)));
  return stream;
}

void UcxLink::send(ucp_ep_h to, unsigned kind, Parcel& parcel, std::span<const std::byte> payload) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    auto& done = *static_cast<Parcel*>(user_data);
    done.link->worker_.library().request_free(request);
    done.link->sent(done, status);
  };
  params.user_data = &parcel;
  taken(parcel.message.prefix);
  std::size_t header_bytes = parcel.message.bytes();
  if (payload.size() <= worker_.longest_short()) {
    std::ranges::copy(payload, parcel.payload.begin());
    header_bytes += std::exchange(payload, {}).size();
  }
  const ucs_status_ptr_t request =
      worker_.library().am_send_nbx(to, kind, &parcel.message, header_bytes, payload.data(), payload.size(), &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) sent(parcel, UCS_PTR_STATUS(request));
}

void UcxLink::sent(Parcel& parcel, ucs_status_t status) {
  done_with(parcel.message.prefix, status != UCS_OK);
  if (status != UCS_OK && failure_ == UCS_OK) failure_ = status;
  spare_.push_back(&parcel);
}

void UcxLink::send_nothing(unsigned kind) {
  const FramePrefix nothing{.kind = FramePrefix::kCredit, .token = identity().prefix_token()};
  send(endpoint(), kind, parcel(nothing), {});
}

// As in shared memory (ShmTransport::wake): the peer stores that it sleeps, fences, and looks once more before it does.
// Who wakes it says so, and others need not.
bool UcxLink::write() {
  bool woken = false;
  if (UcxSide* const peer = std::exchange(news_, nullptr); peer != nullptr && !lost()) {
    syntony::fence(std::memory_order_seq_cst);
    woken = peer->sleeping.load(std::memory_order_relaxed) != 0 &&
            peer->sleeping.exchange(0, std::memory_order_relaxed) != 0;
    if (woken) send_nothing(UcxTransport::kWake);
  }
  return MessageLink::write() || woken;
}

void UcxLink::sleeping(bool asleep) {
  for (UcxSide* side : ours_) side->sleeping.store(asleep ? 1 : 0, std::memory_order_relaxed);
}

void UcxLink::waits_on(std::uint32_t cpu) {
  for (UcxSide* side : ours_) {
    if (side->cpu.load(std::memory_order_relaxed) != cpu + 1) side->cpu.store(cpu + 1, std::memory_order_relaxed);
  }
}

std::optional<std::uint32_t> UcxLink::peer_cpu() const {
  const std::uint32_t named = peer_ == nullptr ? 0 : peer_->cpu.load(std::memory_order_relaxed);
  if (named == 0 || peer_->sleeping.load(std::memory_order_relaxed) != 0) return std::nullopt;
  return named - 1;
}

void UcxLink::look_for_credit(StreamKey key) {
  const UcxStream* const stream = lent(key);
  if (stream == nullptr || lost()) return;
  if (!credited(data_prefix(key, stream->memory().released().load(std::memory_order_acquire)))) refuse();
}

void UcxLink::owe_credit(FrameReceiver& receiver) {
  const Reading* const lent = reading(receiver.key());
  if (lent == nullptr) return MessageLink::owe_credit(receiver);
  lent->stream.memory().released().store(receiver.tell(), std::memory_order_release);
  news_ = &lent->stream.sender();
}

void UcxLink::send_credit(const FramePrefix& credit) { send(endpoint(), UcxTransport::kMessage, parcel(credit), {}); }

bool UcxLink::fence() {
  if (endpoint_ == nullptr) return false;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    auto& link = *static_cast<UcxLink*>(user_data);
    link.worker_.library().request_free(request);
    link.fenced();
    if (status != UCS_OK && link.failure_ == UCS_OK) link.failure_ = status;
  };
  params.user_data = this;
  const ucs_status_ptr_t request = worker_.library().ep_flush_nbx(endpoint_, &params);
  if (UCS_PTR_IS_ERR(request)) {
    if (failure_ == UCS_OK) failure_ = UCS_PTR_STATUS(request);
    return false;
  }
  if (request == nullptr) fenced();
  return true;
}

// ---- receiving

void UcxLink::take(const MessageHeader& message, const void* data, std::size_t bytes, bool rendezvous) {
  std::byte* const slot = believe(message, bytes);
  if (slot == nullptr) return;
  if (rendezvous) {  // it takes its time, and what is expected elsewhere may have to be forgotten meanwhile
    const StreamKey key{message.prefix.channel, message.prefix.window};
    fetch(message, receiver(key).place_in_slot(message.prefix.number), data);
  } else {
    std::memcpy(slot, data, bytes);
    arrived(message.prefix);
  }
}

void UcxLink::look(const MessageHeader& message, std::string_view where) {
  if (lost()) return;
  if (!known(message.prefix)) return refuse();
  const StreamKey key{message.prefix.channel, message.prefix.window};
  read_.resize(std::size_t{shape().channels} * shape().windows);
  std::unique_ptr<Reading>& lent = read_[index(key)];
  std::byte* const memory = worker_.memory().map(endpoint(), where);
  if (!UcxStream::fits(memory) || lent) {
    complain(lent ? "it says twice where its frames lie" : "its frames lie in memory that cannot be mapped here");
    return refuse();
  }
  lent = std::make_unique<Reading>(Reading{stream_in(memory), message.prefix.number});
  ours_.push_back(&lent->stream.receiver());
  peer_ = &lent->stream.sender();
}

void UcxLink::look_for_frame(StreamKey key) {
  Reading* const lent = reading(key);
  if (lent == nullptr) return;
  const ShmStreamMemory memory = lent->stream.memory();
  const std::uint64_t number = lent->next;
  const SlotLine& slot = memory.slot(number);
  const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
  if (stamp <= number) return;
  const FrameHeader header = slot.header;  // what is checked is what is used
  if (stamp != number + 1) {
    complain("frame " + std::to_string(stamp - 1) + " is where frame " + std::to_string(number) +
             " was not read yet: no slot was free for it");
  } else if (place(data_prefix(key, number), header) != nullptr) {
    ++lent->next;
    receiver(key).lies_at(number, memory.payload(number));
    receiver(key).arrived(number);
    return;
  }
  refuse();
}

void UcxLink::fetch(const MessageHeader& message, std::byte* slot, const void* data) {
  Parcel& coming = parcel(message.prefix);
  std::size_t length = 0;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_RECV_INFO;
  params.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user_data) {
    auto& done = *static_cast<Parcel*>(user_data);
    done.link->worker_.library().request_free(request);
    done.link->fetched(done, status);
  };
  params.user_data = &coming;
  params.recv_info.length = &length;
  const ucs_status_ptr_t request = worker_.library().am_recv_data_nbx(worker_.handle(), const_cast<void*>(data), slot,
                                                                      message.header.length, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) fetched(coming, UCS_PTR_STATUS(request));
}

void UcxLink::fetched(Parcel& parcel, ucs_status_t status) {
  if (status == UCS_OK) {
    arrived(parcel.message.prefix);
  } else if (failure_ == UCS_OK) {
    failure_ = status;
  }
  spare_.push_back(&parcel);
}

// ---- ends

bool UcxLink::handed_over() const { return MessageLink::handed_over() && (lent_.empty() || lost() || all_released()); }

void UcxLink::settle() {
  if (failure_ != UCS_OK && !lost()) {
    lose("lost its connection (" + worker_.library().sentence(failure_) + ")", undelivered());
  }
  if (lost()) close();
}

void UcxLink::close() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  closing_ = worker_.library().ep_close_nbx(std::exchange(endpoint_, nullptr), &params);
}

bool UcxLink::closed() {
  close();
  if (closing_ == nullptr || UCS_PTR_IS_ERR(closing_)) return true;
  if (worker_.library().request_check_status(closing_) == UCS_INPROGRESS) return false;
  worker_.library().request_free(std::exchange(closing_, nullptr));
  return true;
}

}  // namespace syntony

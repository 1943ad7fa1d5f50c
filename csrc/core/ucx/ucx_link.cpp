#include "core/ucx/ucx_link.hpp"

#include <cstring>
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
  return endpoint_;
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
  const ucp_ep_h to = endpoint();  // may throw, before anything has begun
  Parcel& frame = parcel(data_prefix(key, number));
  frame.message.credit = credit_to_go_along(key);
  frame.message.header = header;
  sender(key).hold(number);
  send(to, frame, payload);
}

void UcxLink::send(ucp_ep_h to, Parcel& parcel, const std::byte* payload) {
  const bool data = parcel.message.prefix.kind == FramePrefix::kData;
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
  std::size_t length = data ? parcel.message.header.length : 0;
  if (length <= worker_.longest_short()) {
    if (payload != nullptr) std::memcpy(parcel.payload.data(), payload, length);
    header_bytes += std::exchange(length, 0);
  }
  const ucs_status_ptr_t request = worker_.library().am_send_nbx(to, UcxTransport::kMessage, &parcel.message,
                                                                 header_bytes, payload, length, &params);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) sent(parcel, UCS_PTR_STATUS(request));
}

void UcxLink::sent(Parcel& parcel, ucs_status_t status) {
  done_with(parcel.message.prefix, status != UCS_OK);
  if (status != UCS_OK && failure_ == UCS_OK) failure_ = status;
  spare_.push_back(&parcel);
}

void UcxLink::send_credit(const FramePrefix& credit) { send(endpoint(), parcel(credit), nullptr); }

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

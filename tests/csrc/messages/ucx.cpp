// UCX as seen by the message tests: two workers of this process.
#include <cstring>
#include <deque>
#include <utility>

#include "core/ucx/ucx_transport.hpp"
#include "wire.hpp"

namespace tests {
namespace {

using namespace syntony;

class UcxMeeting final : public Meeting {
 public:
  UcxMeeting() : worker_(std::make_shared<UcxWorker>()), sender_(std::make_shared<UcxWorker>()) {
    const std::vector<std::string> addresses{"", sender_->address(), sender_->address()};
    const std::vector<std::uint32_t> remote{1, 2};
    transport_ = worker_->connect(kShape, kSelf, remote, addresses);
    ucp_am_handler_param_t deaf{};  // ignores credits
    deaf.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    deaf.id = UcxTransport::kMessage;
    deaf.cb = [](void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) { return UCS_OK; };
    require(sender_->library().worker_set_am_recv_handler(sender_->handle(), &deaf) == UCS_OK, "a handler");
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(worker_->address().data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    require(sender_->library().ep_create(sender_->handle(), &params, &endpoint_) == UCS_OK, "an endpoint");
  }

  ~UcxMeeting() override { transport_.reset(); }

  void send(const MessageHeader& message, const std::vector<std::byte>& payload) override {
    send(UcxTransport::kMessage, &message, message.bytes(), payload);
  }
  void send_any(const std::vector<std::byte>& header, const std::vector<std::byte>& payload) override {
    send(UcxTransport::kMessage, header.data(), header.size(), payload);
  }
  bool send_lent(const MessageHeader& message, const std::vector<std::byte>& where) override {
    send(UcxTransport::kLent, &message, message.bytes(), where);
    return true;
  }
  std::byte* lend(const MessageHeader& message, std::size_t bytes) override {
    const UcxMemory::Shared memory = sender_->memory().share(bytes);
    require(memory.begin != nullptr, "there is memory to share");
    const auto* const where = reinterpret_cast<const std::byte*>(memory.where.data());
    send_lent(message, {where, where + memory.where.size()});
    return memory.begin;
  }

 private:
  void progress() override { sender_->progress(); }
  void send(unsigned kind, const void* header, std::size_t header_bytes, const std::vector<std::byte>& payload) {
    ucp_request_param_t params{};
    const ucs_status_ptr_t request =
        sender_->library().am_send_nbx(endpoint_, kind, header, header_bytes, payload.data(), payload.size(), &params);
    require(!UCS_PTR_IS_ERR(request), "a message is sent");
    eventually(
        [&] { return request == nullptr || sender_->library().request_check_status(request) != UCS_INPROGRESS; });
    if (request != nullptr) sender_->library().request_free(request);
  }

  std::shared_ptr<UcxWorker> worker_, sender_;
  ucp_ep_h endpoint_ = nullptr;
};

namespace late {

struct Message {
  ucp_ep_h to = nullptr;
  unsigned id = 0;
  std::vector<std::byte> header, payload;
};
std::deque<Message> under_way;
std::optional<ucp_request_param_t> flush;  // waits for those
std::byte flush_request{};

void forget(void* request) {
  if (request != &flush_request) UcxLibrary::get().request_free(request);
}

void deliver() {
  if (!under_way.empty()) {
    // Of its own copy, which UCX has sent or copied when it says so; the test has no time for it, and leaves it there.
    static std::deque<Message> delivered;
    const Message& message = delivered.emplace_back(std::move(under_way.front()));
    under_way.pop_front();
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    params.cb.send = [](void* request, ucs_status_t, void*) { forget(request); };
    const ucs_status_ptr_t request =
        UcxLibrary::get().am_send_nbx(message.to, message.id, message.header.data(), message.header.size(),
                                      message.payload.data(), message.payload.size(), &params);
    require(!UCS_PTR_IS_ERR(request), "a late message is sent");
  } else if (flush) {
    const ucp_request_param_t done = *std::exchange(flush, std::nullopt);
    done.cb.send(&flush_request, UCS_OK, done.user_data);
  }
}

UcxLibrary library() {
  UcxLibrary late = UcxLibrary::get();
  late.am_send_nbx = [](ucp_ep_h to, unsigned id, const void* header, std::size_t header_bytes, const void* payload,
                        std::size_t length, const ucp_request_param_t*) -> ucs_status_ptr_t {
    const auto copy = [](const void* from, std::size_t count) {
      const auto* const begin = static_cast<const std::byte*>(from);
      return count == 0 ? std::vector<std::byte>() : std::vector<std::byte>(begin, begin + count);
    };
    under_way.push_back({to, id, copy(header, header_bytes), copy(payload, length)});
    return nullptr;
  };
  late.ep_flush_nbx = [](ucp_ep_h, const ucp_request_param_t* params) -> ucs_status_ptr_t {
    flush = *params;
    return &flush_request;
  };
  late.request_free = forget;
  return late;
}

}  // namespace late

}  // namespace

const std::uint32_t kUnfetched = 200'000;

std::unique_ptr<Meeting> meet() { return std::make_unique<UcxMeeting>(); }

Hearing hearing() {
  return [worker = std::make_shared<UcxWorker>(), nowhere = std::string()](const MessageHeader& message,
                                                                           const std::vector<std::byte>& payload) {
    UcxLink link(kShape, kSelf, 1, *worker, nowhere);
    link.take(message, payload.data(), payload.size(), false);
    return link.take_fault();
  };
}

LateWire late_wire() {
  static const UcxLibrary library = late::library();
  return {.here = std::make_shared<UcxWorker>(),
          .there = std::make_shared<UcxWorker>(library),
          .under_way = [] { return !late::under_way.empty(); },
          .deliver = late::deliver};
}

}  // namespace tests

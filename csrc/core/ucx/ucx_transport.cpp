#include "core/ucx/ucx_transport.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/error.hpp"
#include "core/process/emptier_cpu.hpp"

namespace syntony {

UcxTransport::UcxTransport(const StreamShape& shape, const GroupIdentity& identity, std::shared_ptr<UcxWorker> worker,
                           std::span<const std::uint32_t> remote, std::span<const std::string> addresses)
    : MessageTransport("UCX", shape, identity, remote, addresses, worker->descriptor()), worker_(std::move(worker)) {
  handle<kMessage>();
  handle<kLent>();
  handle<kReads>();
  handle<kWake>();
}

template <unsigned kind>
void UcxTransport::handle() {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kind;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                  const ucp_am_recv_param_t* param) {
    static_cast<UcxTransport*>(self)->take(kind, header, header_bytes, data, bytes,
                                           (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    return UCS_OK;  // this rejects a rendezvous that was not begun, and notifies its sender
  };
  handler.arg = this;
  const ucs_status_t status = worker_->library().worker_set_am_recv_handler(worker_->handle(), &handler);
  if (status != UCS_OK) {
    throw Error(Error::Kind::system,
                worker_->name() + " takes no active messages: " + worker_->library().sentence(status));
  }
}

UcxTransport::~UcxTransport() {
  constexpr std::chrono::milliseconds kLongest{500};
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  for (MessageLink* link : links()) {
    auto& ours = static_cast<UcxLink&>(*link);
    while (!ours.closed() && std::chrono::steady_clock::now() < deadline) worker_->progress();
  }
  worker_.reset();  // it may still use what the links hold
  forget_links();
}

std::unique_ptr<MessageLink> UcxTransport::make_link(std::uint32_t rank, const std::string& address) {
  return std::make_unique<UcxLink>(shape(), identity(), rank, *worker_, address);
}

// Where frames come through memory only, UCX has little to say, and asking it takes longer than looking there.
bool UcxTransport::progress() {
  constexpr unsigned kTurns = 8;
  const bool due = turns_++ % kTurns == 0;
  const bool messages = std::ranges::any_of(
      links(), [](const MessageLink* link) { return !static_cast<const UcxLink*>(link)->reads_memory(); });
  return (due || messages) && MessageTransport::progress();
}

void UcxTransport::sleeping(bool asleep) {
  for (MessageLink* link : links()) static_cast<UcxLink*>(link)->sleeping(asleep);
  if (asleep) fence(std::memory_order_seq_cst);
  turns_ = 0;
  MessageTransport::sleeping(asleep);
}

bool UcxTransport::meets_on(std::uint32_t cpu) {
  bool meets = false;
  for (MessageLink* link : links()) {
    auto& ours = static_cast<UcxLink&>(*link);
    ours.waits_on(cpu);
    meets |= ours.peer_cpu() == cpu;
  }
  return meets;
}

std::optional<std::uint32_t> UcxTransport::emptier(std::uint32_t cpu, std::span<const std::uint32_t> allowed) const {
  std::vector<AwakeRank> awake{{identity().rank, cpu}};
  for (const MessageLink* link : links()) {
    const auto& theirs = static_cast<const UcxLink&>(*link);
    if (const auto named = theirs.peer_cpu()) awake.push_back({theirs.rank(), *named});
  }
  return emptier_cpu(awake, identity().rank, cpu, allowed);
}

void UcxTransport::take(unsigned kind, const void* header, std::size_t header_bytes, const void* data,
                        std::size_t bytes, bool rendezvous) {
  MessageHeader message;
  try {
    MessageLink* const link = recognize({static_cast<const std::byte*>(header), header_bytes}, message);
    if (link == nullptr) return;
    if (bytes == 0) {  // a short payload is part of the header
      data = static_cast<const std::byte*>(header) + message.bytes();
      bytes = header_bytes - message.bytes();
    }
    auto& ours = static_cast<UcxLink&>(*link);
    if (kind == kMessage) {
      ours.take(message, data, bytes, rendezvous);
    } else if (kind == kReads) {
      ours.can_read();
    } else if (kind == kLent && !rendezvous) {
      ours.look(message, {static_cast<const char*>(data), bytes});
    }
  } catch (...) {
    if (!caught_) caught_ = std::current_exception();
  }
}

}  // namespace syntony

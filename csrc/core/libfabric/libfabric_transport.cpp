#include "core/libfabric/libfabric_transport.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.hpp"
#include "core/libfabric/libfabric_link.hpp"

namespace syntony {

LibfabricTransport::LibfabricTransport(const StreamShape& shape, const GroupIdentity& identity,
                                       std::shared_ptr<LibfabricEndpoint> endpoint,
                                       std::span<const std::uint32_t> remote, std::span<const std::string> addresses)
    : MessageTransport("libfabric", shape, identity, remote, addresses, endpoint->descriptor()),
      endpoint_(std::move(endpoint)) {
  for (std::size_t i = 0; i < kBuffers; ++i) {
    unposted_.push_back(buffers_.emplace_back(std::make_unique<Buffer>(*this)).get());
  }
  post_buffers();
}

LibfabricTransport::~LibfabricTransport() {
  if (!drained_) {
    abandon();
    return;
  }
  endpoint_->close();  // it may still use what links and buffers hold
  forget_links();
}

bool LibfabricTransport::drain(std::chrono::milliseconds timeout) {
  drained_ = MessageTransport::drain(timeout);
  return drained_;
}

// libfabric 1.17 (ofi_rxm over tcp) crashes if an endpoint is closed while messages are in flight, and so does the
// process of a peer that is just connecting to it. After a failure the endpoint is left as it is, with the memory that
// it may use, until the process ends.
void LibfabricTransport::abandon() {
  struct Abandoned {
    std::shared_ptr<LibfabricEndpoint> endpoint;
    std::vector<std::unique_ptr<MessageLink>> links;
    std::vector<std::unique_ptr<Buffer>> buffers;
  };
  [[maybe_unused]] const auto* const abandoned =
      new Abandoned{std::move(endpoint_), take_links(), std::move(buffers_)};  // NOLINT: for good
}

std::unique_ptr<MessageLink> LibfabricTransport::make_link(std::uint32_t rank, const std::string& address) {
  return std::make_unique<LibfabricLink>(shape(), identity(), rank, *endpoint_, address);
}

LibfabricTransport::Buffer::Buffer(LibfabricTransport& of)
    : transport(of), bytes(sizeof(MessageHeader) + LibfabricLink::kShort) {}

// A failed receive does not say who sent what: links notice failures by their own operations.
void LibfabricTransport::Buffer::done(int error, std::size_t came) {
  transport.unposted_.push_back(this);
  if (error == 0) transport.take(std::span(bytes).first(came));
}

void LibfabricTransport::take(std::span<const std::byte> bytes) {
  MessageHeader message;
  MessageLink* const link = recognize(bytes, message);
  if (link == nullptr) return;
  static_cast<LibfabricLink*>(link)->take(message, bytes.subspan(message.bytes()));
}

void LibfabricTransport::post_buffers() {
  while (!unposted_.empty()) {
    Buffer& buffer = *unposted_.back();
    void* const described = endpoint_->describe(buffer.bytes.data(), buffer.bytes.size());
    const long result = fi_recv(endpoint_->handle(), buffer.bytes.data(), buffer.bytes.size(), described,
                                FI_ADDR_UNSPEC, &buffer.ticket);
    if (result == -FI_EAGAIN) return;
    if (result != 0) {
      throw Error(Error::Kind::system,
                  endpoint_->name() + " takes no buffers: " + endpoint_->library().sentence(result));
    }
    unposted_.pop_back();
  }
}

bool LibfabricTransport::poll() {
  bool moved = false;
  try {
    moved = endpoint_->progress();
    post_buffers();
    for (MessageLink* link : links()) moved |= static_cast<LibfabricLink*>(link)->retry();
  } catch (...) {
    if (!caught_) caught_ = std::current_exception();
  }
  return moved;
}

bool LibfabricTransport::arm() {
  const auto waits = [](const MessageLink* link) { return static_cast<const LibfabricLink*>(link)->waits(); };
  return unposted_.empty() && std::ranges::none_of(links(), waits) && endpoint_->arm();
}

}  // namespace syntony

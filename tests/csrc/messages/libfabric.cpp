// libfabric as seen by the message tests: two endpoints of this process.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "core/libfabric/libfabric_link.hpp"
#include "core/libfabric/libfabric_transport.hpp"
#include "wire.hpp"

namespace tests {
namespace {

using namespace syntony;

std::shared_ptr<LibfabricEndpoint> endpoint() {
  ::setenv("FI_PROVIDER", "tcp", 0);
  return std::make_shared<LibfabricEndpoint>();
}

/// The tag by which rank 0 requests the payload of rank 1's frame, if that is long.
std::uint64_t tag_of(const MessageHeader& message) {
  const std::uint64_t stream = std::uint64_t{message.prefix.channel} * kShape.windows + message.prefix.window;
  return (std::uint64_t{message.from} << 28U) | (stream << 16U) | (message.prefix.number & 0xffffU);
}

class LibfabricMeeting final : public Meeting {
 public:
  LibfabricMeeting() : here_(endpoint()), there_(endpoint()) {
    const std::vector<std::string> addresses{"", there_->address(), there_->address()};
    const std::vector<std::uint32_t> remote{1, 2};
    transport_ = here_->connect(kShape, kSelf, remote, addresses);
    peer_ = there_->peer(here_->address());
  }

  ~LibfabricMeeting() override { transport_.reset(); }

  void send(const MessageHeader& message, const std::vector<std::byte>& payload) override {
    const bool apart = payload.size() > LibfabricLink::kShort;
    send(&message, message.bytes(), payload, apart ? std::optional(tag_of(message)) : std::nullopt);
  }
  void send_any(const std::vector<std::byte>& header, const std::vector<std::byte>& payload) override {
    send(header.data(), header.size(), payload, {});
  }

 private:
  struct Sent final : LibfabricOperation {
    void done(int error, std::size_t) override {
      over = true;
      require(error == 0, "a message is sent");
    }
    std::vector<std::byte> bytes;
    bool over = false;
  };

  void progress() override { there_->progress(); }

  /// Sends the payload separately with its tag, or behind the header.
  void send(const void* header, std::size_t header_bytes, const std::vector<std::byte>& payload,
            std::optional<std::uint64_t> tag) {
    Sent& message = *sent_.emplace_back(std::make_unique<Sent>());
    Sent& apart = *sent_.emplace_back(std::make_unique<Sent>());
    message.bytes.resize(header_bytes);
    std::memcpy(message.bytes.data(), header, header_bytes);
    if (tag) {
      apart.bytes = payload;
    } else {
      message.bytes.insert(message.bytes.end(), payload.begin(), payload.end());
    }
    message.bytes.reserve(1);  // an address, also of nothing
    start([&] {
      return fi_send(there_->handle(), message.bytes.data(), message.bytes.size(), nullptr, peer_, &message.ticket);
    });
    if (tag) {
      start([&] {
        return fi_tsend(there_->handle(), apart.bytes.data(), apart.bytes.size(), nullptr, peer_, *tag, &apart.ticket);
      });
    }
    eventually([&] { return message.over && (!tag || apart.over || fault()); });
  }

  void start(const std::function<long()>& sending) {
    long result = 0;
    eventually([&] { return (result = sending()) != -FI_EAGAIN; });
    require(result == 0, "libfabric takes a message");
  }

  std::deque<std::unique_ptr<Sent>> sent_;  // used by libfabric as long as there are endpoints
  std::shared_ptr<LibfabricEndpoint> here_, there_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
};

/// Operations that complete on delivery must not complete earlier.
namespace late {

struct Message {
  std::vector<std::byte> bytes;
  std::optional<std::uint64_t> tag;
  fi_addr_t to = FI_ADDR_UNSPEC;
  void* waits = nullptr;  // for its delivery
};
std::deque<Message> under_way;
std::deque<void*> complete;
fid_ep* endpoint = nullptr;
fi_ops_msg* msg = nullptr;
fi_ops_tagged* tagged = nullptr;
fi_ops_cq* cq = nullptr;

struct Delivered final : LibfabricOperation {
  void done(int error, std::size_t) override { require(error == 0, "a late message is sent"); }
  Message message;
};

Message copy(const void* from, std::size_t count, fi_addr_t to) {
  const auto* const begin = static_cast<const std::byte*>(from);
  return {std::vector<std::byte>(begin, begin + count), {}, to, nullptr};
}

ssize_t send(fid_ep*, const void* from, std::size_t count, void*, fi_addr_t to, void* context) {
  under_way.push_back(copy(from, count, to));
  complete.push_back(context);
  return 0;
}

ssize_t tsend(fid_ep*, const void* from, std::size_t count, void*, fi_addr_t to, std::uint64_t tag, void* context) {
  under_way.push_back(copy(from, count, to));
  under_way.back().tag = tag;
  complete.push_back(context);
  return 0;
}

ssize_t sendmsg(fid_ep*, const fi_msg* message, std::uint64_t flags) {
  under_way.push_back(copy(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, message->addr));
  if ((flags & FI_DELIVERY_COMPLETE) != 0) {
    under_way.back().waits = message->context;
  } else {
    complete.push_back(message->context);
  }
  return 0;
}

ssize_t read(fid_cq* queue, void* into, std::size_t count) {
  if (complete.empty()) return cq->read(queue, into, count);
  *static_cast<fi_cq_msg_entry*>(into) = {complete.front(), FI_SEND, 0};
  complete.pop_front();
  return 1;
}

void deliver() {
  static std::deque<Delivered> delivered;  // used by libfabric until it says otherwise; the test does not wait for that
  if (under_way.empty()) return;
  Delivered& now = delivered.emplace_back();
  now.message = std::move(under_way.front());
  const Message& message = now.message;
  const ssize_t result =
      message.tag ? tagged->send(endpoint, message.bytes.data(), message.bytes.size(), nullptr, message.to,
                                 *message.tag, &now.ticket)
                  : msg->send(endpoint, message.bytes.data(), message.bytes.size(), nullptr, message.to, &now.ticket);
  if (result == -FI_EAGAIN) {
    under_way.front() = std::move(now.message);
    delivered.pop_back();
    return;
  }
  require(result == 0, "a late message is taken");
  under_way.pop_front();
  if (message.waits != nullptr) complete.push_back(message.waits);
}

void make_late(const LibfabricEndpoint& slow) {
  static fi_ops_msg late_msg;
  static fi_ops_tagged late_tagged;
  static fi_ops_cq late_cq;
  endpoint = slow.handle();
  msg = std::exchange(endpoint->msg, &late_msg);
  tagged = std::exchange(endpoint->tagged, &late_tagged);
  cq = std::exchange(slow.completions()->ops, &late_cq);
  late_msg = *msg;
  late_msg.send = send;
  late_msg.sendmsg = sendmsg;
  late_tagged = *tagged;
  late_tagged.send = tsend;
  late_cq = *cq;
  late_cq.read = read;
}

}  // namespace late

}  // namespace

const std::uint32_t kUnfetched = 4;  // a longer one would wait

std::unique_ptr<Meeting> meet() { return std::make_unique<LibfabricMeeting>(); }

Hearing hearing() {
  return [here = endpoint(), nowhere = std::string()](const MessageHeader& message,
                                                      const std::vector<std::byte>& payload) {
    LibfabricLink link(kShape, kSelf, 1, *here, nowhere);
    link.take(message, payload);
    return link.take_fault();
  };
}

LateWire late_wire() {
  const std::shared_ptr<LibfabricEndpoint> there = endpoint();
  late::make_late(*there);
  return {.here = endpoint(),
          .there = there,
          .under_way = [] { return !late::under_way.empty(); },
          .deliver = late::deliver};
}

}  // namespace tests

// libfabric list | NAME      what comes over libfabric from strangers and from ranks that talk nonsense; exit code 0
// when it passes
//
// Two endpoints in this process: one has the transport of rank 0, the other sends whatever a test wants it to.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/frames/frame_stream.hpp"
#include "core/libfabric/libfabric_link.hpp"
#include "core/libfabric/libfabric_transport.hpp"

namespace {

using namespace syntony;
using Clock = std::chrono::steady_clock;

constexpr StreamShape kShape{.ranks = 3, .channels = 2, .windows = 2, .depth = 4, .slot_bytes = 256 * 1024};
constexpr GroupIdentity kSelf{.token = {0x1234567890abcdef, 0xfedcba0987654321}, .group = 7, .rank = 0, .ranks = 3};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("failed: " + what);
}

/// A frame as rank 1 sends it.
MessageHeader frame(std::uint64_t number, std::uint32_t length) {
  MessageHeader message;
  message.mark = mark_of(kSelf, 1, 0);
  message.from = 1;
  message.to = 0;
  message.prefix = {.token = kSelf.prefix_token(), .number = number, .window = 1, .channel = 1};
  message.header = {.token = kSelf.frame_token(), .group = kSelf.group, .channel = 1, .length = length};
  return message;
}

MessageHeader credit(std::uint64_t number) {
  MessageHeader message = frame(number, 0);
  message.prefix.kind = FramePrefix::kCredit;
  return message;
}

std::vector<std::byte> bytes(std::uint32_t count) {
  std::vector<std::byte> all(count);
  for (std::uint32_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i * 7 + count);
  return all;
}

/// By which rank 0 asks for the payload of rank 1's frame, where that is long.
std::uint64_t tag_of(const MessageHeader& message) {
  const std::uint64_t stream = std::uint64_t{message.prefix.channel} * kShape.windows + message.prefix.window;
  return (std::uint64_t{message.from} << 28U) | (stream << 16U) | (message.prefix.number & 0xffffU);
}

/// Rank 0's transport, and somebody who sends it messages.
class Meeting {
 public:
  Meeting() : here_(std::make_shared<LibfabricEndpoint>()), there_(std::make_shared<LibfabricEndpoint>()) {
    const std::vector<std::string> addresses{"", there_->address(), there_->address()};
    const std::vector<std::uint32_t> remote{1, 2};
    transport_ = here_->connect(kShape, kSelf, remote, addresses);
    peer_ = there_->peer(here_->address());
  }

  Transport& transport() { return *transport_; }

  /// The payload apart and with its tag, or behind the header.
  void send(const void* header, std::size_t header_bytes, const std::vector<std::byte>& payload,
            std::optional<std::uint64_t> tag = {}) {
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
    eventually([&] { return message.over && (!tag || apart.over || fault_); });
  }
  void send(const MessageHeader& message, const std::vector<std::byte>& payload = {}) {
    const bool apart = payload.size() > LibfabricLink::kShort;
    send(&message, message.bytes(), payload, apart ? std::optional(tag_of(message)) : std::nullopt);
  }

  /// Makes progress at both ends until `done`.
  void eventually(const std::function<bool()>& done) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      there_->progress();
      if (!fault_) {
        try {
          transport_->progress();
        } catch (const Error& error) {
          fault_ = error;
        }
      }
      require(Clock::now() < deadline, "it comes within a minute");
    }
  }

  [[nodiscard]] const std::optional<Error>& fault() const { return fault_; }

 private:
  struct Sent final : LibfabricOperation {
    void done(int error, std::size_t) override {
      over = true;
      require(error == 0, "a message is sent");
    }
    std::vector<std::byte> bytes;
    bool over = false;
  };

  void start(const std::function<long()>& sending) {
    long result = 0;
    eventually([&] { return (result = sending()) != -FI_EAGAIN; });
    require(result == 0, "libfabric takes a message");
  }

  std::deque<std::unique_ptr<Sent>> sent_;  // libfabric's, as long as there are endpoints
  std::shared_ptr<LibfabricEndpoint> here_, there_;
  std::unique_ptr<Transport> transport_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::optional<Error> fault_;
};

void arrives(Meeting& meeting, std::uint32_t length) {
  Receiver& receiver = meeting.transport().receiver(1, 1, 1);
  meeting.eventually([&] { return receiver.front() != nullptr || meeting.fault(); });
  require(!meeting.fault(), "nobody is blamed");
  require(receiver.front()->length == length, "its length");
  require(std::memcmp(receiver.payload(), bytes(length).data(), length) == 0, "its bytes");
  receiver.release();
}

/// Sends an honest frame and waits until it is there: whatever was sent before has been looked at by then.
void honest(Meeting& meeting, std::uint64_t number, std::uint32_t length) {
  meeting.send(frame(number, length), bytes(length));
  arrives(meeting, length);
}

/// Short and long ones, in what order they may overtake each other.
void frames_come_whole() {
  Meeting meeting;
  std::uint64_t number = 0;
  for (const std::uint32_t length : {0U, 1U, 4096U, 200'000U, 100U, 256U * 1024U, 7U})
    honest(meeting, number++, length);
}

void strangers_are_dropped() {
  Meeting meeting;
  MessageHeader wrong = frame(0, 4);
  wrong.mark ^= 1;
  meeting.send(wrong, bytes(4));
  wrong = frame(0, 4);
  wrong.from = 2;  // rank 1's mark is not rank 2's
  meeting.send(wrong, bytes(4));
  for (const std::uint32_t from : {0U, 3U, 0xffffffffU}) {
    wrong.from = from;
    meeting.send(wrong, bytes(4));
  }
  wrong = frame(0, 4);
  wrong.to = 1;
  meeting.send(wrong, bytes(4));
  const MessageHeader whole = frame(0, 4);
  for (std::size_t length = 0; length < sizeof(whole); ++length) meeting.send(&whole, length, {});
  const std::vector<std::byte> more = bytes(500);
  meeting.send(more.data(), more.size(), bytes(100));
  honest(meeting, 0, 4);
}

void refused(const MessageHeader& message, std::uint32_t payload, const std::string& why) {
  Meeting meeting;
  honest(meeting, 0, 4);
  meeting.send(message, bytes(payload));
  meeting.eventually([&] { return meeting.fault().has_value(); });
  require(meeting.fault()->kind() == Error::Kind::mismatch, "it is a mismatch");
  require(meeting.fault()->ranks() == std::vector<int>{1}, "of rank 1");
  const std::string said = meeting.fault()->what();
  require(said.find(why) != std::string::npos, said + " | does not say: " + why);
}

void members_that_talk_nonsense_are_named() {
  MessageHeader message = frame(1, 4);
  message.prefix.token ^= 1;
  refused(message, 4, "its token is not this group's");
  message = frame(1, 4);
  message.header.token ^= 1;
  refused(message, 4, "belongs to another group");
  message = frame(1, 4);
  message.prefix.channel = 2;
  refused(message, 4, "it names channel 2");
  refused(frame(1, kShape.slot_bytes + 1), kShape.slot_bytes + 1, "where a slot takes");
  refused(frame(1, 5), 4, "it does not begin like one");
  refused(frame(5, 4), 4, "no slot was free for frame 5");
  refused(credit(1), 0, "more than were sent");
  message = frame(1, 4);
  message.credit = 1;
  refused(message, 4, "more than were sent");
}

/// Random damage to what a member says: it is believed, or the member is named; nothing else happens.
void random_damage() {
  LibfabricEndpoint endpoint;
  const std::string nowhere;
  std::mt19937_64 random(1);
  std::map<bool, int> seen;
  for (int turn = 0; turn < 20'000; ++turn) {
    LibfabricLink link(kShape, kSelf, 1, endpoint, nowhere);
    const auto length = static_cast<std::uint32_t>(random() % 64);
    MessageHeader message = random() % 4 == 0 ? credit(0) : frame(random() % 6, length);
    for (std::uint64_t hits = random() % 3; hits > 0; --hits) {
      reinterpret_cast<unsigned char*>(&message)[random() % sizeof(message)] ^=
          static_cast<unsigned char>(1U << random() % 8);
    }
    std::vector<std::byte> payload = bytes(length);
    link.take(message, payload);
    const std::optional<Error> fault = link.take_fault();
    ++seen[fault.has_value()];
    require(!fault || fault->kind() == Error::Kind::mismatch, "who is not believed is named");
  }
  require(seen[true] > 1000 && seen[false] > 1000, "both happen");
}

/// A wire that calls a message sent when it has copied it, and delivers it when it is told to: what RDMA may do. What
/// is to be complete on delivery is not complete before.
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
  static std::deque<Delivered> delivered;  // libfabric's until it says so; the test has no time for it
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

/// Rank 1 sends to rank 0 over a late wire. `deluded` takes what is sent for delivered, and so released.
void frames_over_a_late_wire(bool deluded) {
  constexpr std::uint64_t kFrames = 40;
  constexpr GroupIdentity kOther{.token = kSelf.token, .group = kSelf.group, .rank = 1, .ranks = 3};
  const auto here = std::make_shared<LibfabricEndpoint>(), there = std::make_shared<LibfabricEndpoint>();
  late::make_late(*there);
  const std::vector<std::string> addresses{here->address(), there->address(), ""};
  const std::vector<std::uint32_t> zero{0}, one{1};
  const std::unique_ptr<Transport> receives = here->connect(kShape, kSelf, one, addresses);
  const std::unique_ptr<Transport> sends = there->connect(kShape, kOther, zero, addresses);
  Sender& sender = sends->sender(0, 1, 1);
  Receiver& receiver = receives->receiver(1, 1, 1);
  std::uint64_t sent = 0, received = 0;
  for (int turn = 0; received < kFrames; ++turn) {
    require(turn < 2'000'000, "all frames come");
    const std::uint32_t length = sent % 2 == 0 ? 300 : 30'000;
    std::byte* const room = sent < kFrames ? sender.reserve(length) : nullptr;
    if (room != nullptr) {
      std::memset(room, static_cast<int>(sent + 1), length);
      sender.commit({.token = kSelf.frame_token(), .group = kSelf.group, .channel = 1, .length = length});
      ++sent;
      if (deluded) require(dynamic_cast<FrameSender&>(sender).credit(sent), "it may think so");
    }
    sends->progress();
    receives->progress();
    require(late::under_way.empty() || sends->unsent(), "what is not delivered is not done with");
    if (turn % 50 == 0) late::deliver();
    if (turn % 200 != 0 || receiver.front() == nullptr) continue;
    require(receiver.front()->length == (received % 2 == 0 ? 300U : 30'000U), "frames come in order");
    const std::byte* const payload = receiver.payload();
    const auto value = static_cast<std::byte>(received + 1);
    require(std::all_of(payload, payload + receiver.front()->length, [&](std::byte byte) { return byte == value; }),
            "frames come whole");
    receiver.release();
    ++received;
  }
  while (sends->unsent()) {
    sends->progress();
    receives->progress();
    late::deliver();
  }
}

void what_is_sent_is_not_taken_for_delivered() { frames_over_a_late_wire(false); }

void who_takes_it_for_delivered_is_found_out() {
  try {
    frames_over_a_late_wire(true);
  } catch (const Error& error) {
    require(std::string(error.what()).find("no slot was free") != std::string::npos, error.what());
    return;
  }
  require(false, "slots are filled while they are read");
}

const std::map<std::string, void (*)()> kTests{
    {"frames_come_whole", frames_come_whole},
    {"what_is_sent_is_not_taken_for_delivered", what_is_sent_is_not_taken_for_delivered},
    {"who_takes_it_for_delivered_is_found_out", who_takes_it_for_delivered_is_found_out},
    {"strangers_are_dropped", strangers_are_dropped},
    {"members_that_talk_nonsense_are_named", members_that_talk_nonsense_are_named},
    {"random_damage", random_damage},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "list";
  if (wanted == "list") {
    for (const auto& [name, _] : kTests) std::printf("%s\n", name.c_str());
    return 0;
  }
  ::setenv("FI_PROVIDER", "tcp", 0);
  try {
    kTests.at(wanted)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", wanted.c_str(), error.what());
    return 1;
  }
  return 0;
}

// ucx list | NAME      what comes over UCX from strangers and from ranks that talk nonsense; exit code 0 when it passes
//
// Two workers in this process: one has the transport of rank 0, the other sends whatever a test wants it to.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/ucx/ucx_transport.hpp"

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

/// Rank 0's transport, and somebody who sends it messages.
class Meeting {
 public:
  Meeting() : worker_(std::make_shared<UcxWorker>()), sender_(std::make_shared<UcxWorker>()) {
    const std::vector<std::string> addresses{"", sender_->address(), sender_->address()};
    const std::vector<std::uint32_t> remote{1, 2};
    transport_ = worker_->connect(kShape, kSelf, remote, addresses);
    ucp_am_handler_param_t deaf{};  // to credits
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

  Transport& transport() { return *transport_; }

  void send(const void* header, std::size_t header_bytes, const std::vector<std::byte>& payload) {
    ucp_request_param_t params{};
    const ucs_status_ptr_t request = sender_->library().am_send_nbx(
        endpoint_, UcxTransport::kMessage, header, header_bytes, payload.data(), payload.size(), &params);
    require(!UCS_PTR_IS_ERR(request), "a message is sent");
    eventually(
        [&] { return request == nullptr || sender_->library().request_check_status(request) != UCS_INPROGRESS; });
    if (request != nullptr) sender_->library().request_free(request);
  }
  void send(const MessageHeader& message, const std::vector<std::byte>& payload = {}) {
    send(&message, message.bytes(), payload);
  }

  /// Makes progress at both ends until `done`.
  void eventually(const std::function<bool()>& done) {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      sender_->progress();
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
  std::shared_ptr<UcxWorker> worker_, sender_;
  std::unique_ptr<Transport> transport_;
  ucp_ep_h endpoint_ = nullptr;
  std::optional<Error> fault_;
};

std::vector<std::byte> bytes(std::uint32_t count) {
  std::vector<std::byte> all(count);
  for (std::uint32_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i * 7 + count);
  return all;
}

/// Sends an honest frame and waits until it is there: whatever was sent before has been looked at by then.
void honest(Meeting& meeting, std::uint64_t number, std::uint32_t length) {
  meeting.send(frame(number, length), bytes(length));
  Receiver& receiver = meeting.transport().receiver(1, 1, 1);
  meeting.eventually([&] { return receiver.front() != nullptr || meeting.fault(); });
  require(!meeting.fault(), "nobody is blamed");
  require(receiver.front()->length == length, "its length");
  require(std::memcmp(receiver.payload(), bytes(length).data(), length) == 0, "its bytes");
  receiver.release();
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
  wrong = frame(0, 200'000);
  wrong.to = 1;
  meeting.send(wrong, bytes(200'000));  // nobody fetches it, and its sender is told
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
  UcxWorker worker;
  const std::string nowhere;
  std::mt19937_64 random(1);
  std::map<bool, int> seen;
  for (int turn = 0; turn < 20'000; ++turn) {
    UcxLink link(kShape, kSelf, 1, worker, nowhere);
    const auto length = static_cast<std::uint32_t>(random() % 64);
    MessageHeader message = random() % 4 == 0 ? credit(0) : frame(random() % 6, length);
    for (std::uint64_t hits = random() % 3; hits > 0; --hits) {
      reinterpret_cast<unsigned char*>(&message)[random() % sizeof(message)] ^=
          static_cast<unsigned char>(1U << random() % 8);
    }
    std::vector<std::byte> payload = bytes(length);
    link.take(message, payload.data(), payload.size(), false);
    const std::optional<Error> fault = link.take_fault();
    ++seen[fault.has_value()];
    require(!fault || fault->kind() == Error::Kind::mismatch, "who is not believed is named");
  }
  require(seen[true] > 1000 && seen[false] > 1000, "both happen");
}

const std::map<std::string, void (*)()> kTests{
    {"frames_come_whole", frames_come_whole},
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
  try {
    kTests.at(wanted)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", wanted.c_str(), error.what());
    return 1;
  }
  return 0;
}

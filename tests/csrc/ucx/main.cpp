// ucx list | NAME      what comes over UCX from strangers and from ranks that talk nonsense; exit code 0 when it passes
//
// Two workers in this process: one has the transport of rank 0, the other sends whatever a test wants it to.
#include <algorithm>
#include <chrono>
#include <cstdio>
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

/// As ranks send it: behind the header, as a part of it.
void short_payloads_are_part_of_their_header() {
  Meeting meeting;
  std::uint64_t number = 0;
  for (const std::uint32_t length : {1U, 512U, 0U}) {
    std::vector<std::byte> whole(sizeof(MessageHeader));
    const MessageHeader message = frame(number++, length);
    std::memcpy(whole.data(), &message, sizeof(message));
    const std::vector<std::byte> payload = bytes(length);
    whole.insert(whole.end(), payload.begin(), payload.end());
    meeting.send(whole.data(), whole.size(), {});
    arrives(meeting, length);
  }
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

/// A wire that calls a message sent when it has copied it, and delivers it when it is told to: what RDMA may do.
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

/// Rank 1 sends to rank 0 over a late wire. `deluded` takes what is sent for delivered, and so released.
void frames_over_a_late_wire(bool deluded) {
  constexpr std::uint64_t kFrames = 40;
  constexpr GroupIdentity kOther{.token = kSelf.token, .group = kSelf.group, .rank = 1, .ranks = 3};
  const UcxLibrary library = late::library();
  const auto here = std::make_shared<UcxWorker>(), there = std::make_shared<UcxWorker>(library);
  const std::vector<std::string> addresses{here->address(), there->address(), ""};
  const std::vector<std::uint32_t> zero{0}, one{1};
  const std::unique_ptr<Transport> receives = here->connect(kShape, kSelf, one, addresses);
  const std::unique_ptr<Transport> sends = there->connect(kShape, kOther, zero, addresses);
  Sender& sender = sends->sender(0, 1, 1);
  Receiver& receiver = receives->receiver(1, 1, 1);
  std::uint64_t sent = 0, received = 0;
  for (int turn = 0; received < kFrames; ++turn) {
    require(turn < 2'000'000, "all frames come");
    const std::uint32_t length = sent % 2 == 0 ? 300 : 3000;
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
    require(receiver.front()->length == (received % 2 == 0 ? 300U : 3000U), "frames come in order");
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
    {"short_payloads_are_part_of_their_header", short_payloads_are_part_of_their_header},
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
  try {
    kTests.at(wanted)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", wanted.c_str(), error.what());
    return 1;
  }
  return 0;
}

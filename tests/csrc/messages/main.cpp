// ucx | libfabric list | NAME      messages from strangers, and from ranks that send invalid data, over a wire of whole
// messages; exit code 0 if it passes
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "core/frames/frame_stream.hpp"
#include "core/ucx/ucx_stream.hpp"
#include "wire.hpp"

namespace tests {
namespace {

using namespace syntony;

/// A frame as sent by rank 1.
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

std::vector<std::byte> bytes_of(const MessageHeader& message, std::size_t count = sizeof(MessageHeader)) {
  std::vector<std::byte> all(count);
  if (count > 0) std::memcpy(all.data(), &message, count);
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

/// Sends a valid frame and waits until it has arrived: everything sent before has then been examined.
void honest(Meeting& meeting, std::uint64_t number, std::uint32_t length) {
  meeting.send(frame(number, length), bytes(length));
  arrives(meeting, length);
}

/// Short and long ones, in whatever order they overtake each other.
void frames_come_whole() {
  const std::unique_ptr<Meeting> meeting = meet();
  std::uint64_t number = 0;
  for (const std::uint32_t length : {0U, 1U, 4096U, 200'000U, 100U, 256U * 1024U, 7U})
    honest(*meeting, number++, length);
}

/// As ranks send them: behind the header, as part of it.
void short_payloads_are_part_of_their_header() {
  const std::unique_ptr<Meeting> meeting = meet();
  std::uint64_t number = 0;
  for (const std::uint32_t length : {1U, 512U, 0U}) {
    std::vector<std::byte> whole = bytes_of(frame(number++, length));
    const std::vector<std::byte> payload = bytes(length);
    whole.insert(whole.end(), payload.begin(), payload.end());
    meeting->send_any(whole, {});
    arrives(*meeting, length);
  }
}

void strangers_are_dropped() {
  const std::unique_ptr<Meeting> meeting = meet();
  MessageHeader wrong = frame(0, 4);
  wrong.mark ^= 1;
  meeting->send(wrong, bytes(4));
  wrong = frame(0, 4);
  wrong.from = 2;  // rank 1's mark is not rank 2's
  meeting->send(wrong, bytes(4));
  for (const std::uint32_t from : {0U, 3U, 0xffffffffU}) {
    wrong.from = from;
    meeting->send(wrong, bytes(4));
  }
  wrong = frame(0, kUnfetched);
  wrong.to = 1;
  meeting->send(wrong, bytes(kUnfetched));
  for (std::size_t length = 0; length < sizeof(wrong); ++length) meeting->send_any(bytes_of(frame(0, 4), length), {});
  meeting->send_any(bytes(500), bytes(100));
  honest(*meeting, 0, 4);
}

void refused(const MessageHeader& message, std::uint32_t payload, const std::string& why) {
  const std::unique_ptr<Meeting> meeting = meet();
  honest(*meeting, 0, 4);
  meeting->send(message, bytes(payload));
  meeting->eventually([&] { return meeting->fault().has_value(); });
  require(meeting->fault()->kind() == Error::Kind::mismatch, "it is a mismatch");
  require(meeting->fault()->ranks() == std::vector<int>{1}, "of rank 1");
  const std::string said = meeting->fault()->what();
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

void memory_that_cannot_be_mapped_is_told() {
  const std::unique_ptr<Meeting> meeting = meet();
  if (!meeting->send_lent(frame(0, 5000), bytes(5))) return;
  meeting->eventually([&] { return meeting->fault().has_value(); });
  const std::string said = meeting->fault()->what();
  require(said.find("its frames lie in memory that cannot be mapped here") != std::string::npos, said);
}

/// A stream of rank 1 in memory that rank 0 reads; none if this wire has no such memory, or UCX does not use it.
UcxStream lent_by(Meeting& meeting) {
  std::byte* const memory = meeting.lend(frame(0, 0), UcxStream::bytes(kShape));
  if (memory == nullptr) return {};
  const UcxStream stream{.base = memory, .depth = kShape.depth, .slot_bytes = kShape.slot_bytes};
  stream.begin();
  stream.memory().slot(0).header = frame(0, 0).header;
  stream.memory().slot(0).stamp.store(1, std::memory_order_release);
  Receiver& receiver = meeting.transport().receiver(1, 1, 1);
  meeting.eventually([&] { return receiver.front() != nullptr || meeting.fault(); });
  const bool used = std::getenv("UCX_MM_ERROR_HANDLING") != nullptr;
  require(used || meeting.fault(), "memory is mapped only where UCX uses it");
  if (!used) return {};
  require(!meeting.fault(), "its memory is mapped");
  receiver.release();
  return stream;
}

void write(const UcxStream& stream, std::uint64_t place, std::uint64_t stamp, const FrameHeader& header,
           const std::vector<std::byte>& payload) {
  std::ranges::copy(payload, stream.memory().payload(place));
  stream.memory().slot(place).header = header;
  stream.memory().slot(place).stamp.store(stamp, std::memory_order_release);
}

void frames_are_read_where_they_lie() {
  const std::unique_ptr<Meeting> meeting = meet();
  const UcxStream stream = lent_by(*meeting);
  if (stream.base == nullptr) return;
  for (std::uint64_t number = 1; number < 20; ++number) {
    const auto length = static_cast<std::uint32_t>(number * 13'000 % kShape.slot_bytes);
    write(stream, number, number + 1, frame(number, length).header, bytes(length));
    arrives(*meeting, length);
    require(stream.memory().released().load() == number + 1, "its credit is where the sender finds it");
  }
}

void refused_in_memory(std::uint64_t stamp, const FrameHeader& header, const std::string& why) {
  const std::unique_ptr<Meeting> meeting = meet();
  const UcxStream stream = lent_by(*meeting);
  if (stream.base == nullptr) return;
  write(stream, 1, stamp, header, {});
  Receiver& receiver = meeting->transport().receiver(1, 1, 1);
  meeting->eventually([&] { return receiver.front() != nullptr || meeting->fault().has_value(); });
  require(meeting->fault().has_value(), "it is refused");
  require(meeting->fault()->ranks() == std::vector<int>{1}, "rank 1 is named");
  const std::string said = meeting->fault()->what();
  require(said.find(why) != std::string::npos, said + " | does not say: " + why);
}

void members_that_write_nonsense_are_named() {
  refused_in_memory(6, frame(5, 4).header, "frame 5 is where frame 1 was not read yet");
  refused_in_memory(2, frame(1, kShape.slot_bytes + 1).header, "where a slot takes");
  FrameHeader header = frame(1, 4).header;
  header.token ^= 1;
  refused_in_memory(2, header, "belongs to another group");
  header = frame(1, 4).header;
  header.channel = 0;
  refused_in_memory(2, header, "names channel 0");
}

void who_lends_a_stream_twice_is_named() {
  const std::unique_ptr<Meeting> meeting = meet();
  if (lent_by(*meeting).base == nullptr) return;
  meeting->lend(frame(1, 0), UcxStream::bytes(kShape));
  meeting->eventually([&] { return meeting->fault().has_value(); });
  require(std::string(meeting->fault()->what()).find("it says twice where its frames lie") != std::string::npos,
          meeting->fault()->what());
}

/// Random damage to a member's messages: each is accepted, or the member is named; nothing else happens.
void random_damage() {
  const Hearing hear = hearing();
  std::mt19937_64 random(1);
  std::map<bool, int> seen;
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto length = static_cast<std::uint32_t>(random() % 64);
    MessageHeader message = random() % 4 == 0 ? credit(0) : frame(random() % 6, length);
    for (std::uint64_t hits = random() % 3; hits > 0; --hits) {
      reinterpret_cast<unsigned char*>(&message)[random() % sizeof(message)] ^=
          static_cast<unsigned char>(1U << random() % 8);
    }
    const std::optional<Error> fault = hear(message, bytes(length));
    ++seen[fault.has_value()];
    require(!fault || fault->kind() == Error::Kind::mismatch, "who is not believed is named");
  }
  require(seen[true] > 1000 && seen[false] > 1000, "both happen");
}

/// Rank 1 sends to rank 0 over a late wire. `deluded` takes sent messages for delivered and released.
void frames_over_a_late_wire(bool deluded) {
  constexpr std::uint64_t kFrames = 40;
  constexpr GroupIdentity kOther{.token = kSelf.token, .group = kSelf.group, .rank = 1, .ranks = 3};
  const LateWire wire = late_wire();
  const std::vector<std::string> addresses{wire.here->address(), wire.there->address(), ""};
  const std::vector<std::uint32_t> zero{0}, one{1};
  const std::unique_ptr<Transport> receives = wire.here->connect(kShape, kSelf, one, addresses);
  const std::unique_ptr<Transport> sends = wire.there->connect(kShape, kOther, zero, addresses);
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
    require(!wire.under_way() || sends->unsent(), "what is not delivered is not done with");
    if (turn % 50 == 0) wire.deliver();
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
    wire.deliver();
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
    {"memory_that_cannot_be_mapped_is_told", memory_that_cannot_be_mapped_is_told},
    {"frames_are_read_where_they_lie", frames_are_read_where_they_lie},
    {"members_that_write_nonsense_are_named", members_that_write_nonsense_are_named},
    {"who_lends_a_stream_twice_is_named", who_lends_a_stream_twice_is_named},
    {"random_damage", random_damage},
};

}  // namespace
}  // namespace tests

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "list";
  if (wanted == "list") {
    for (const auto& [name, _] : tests::kTests) std::printf("%s\n", name.c_str());
    return 0;
  }
  try {
    tests::kTests.at(wanted)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", wanted.c_str(), error.what());
    return 1;
  }
  return 0;
}

// Control messages as a peer may send them. The expected result comes from a simple walk over the whole input; if ranks
// relay, from a third rank, which receives what the middle one has accepted.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "core/legible.hpp"
#include "core/tcp/tcp_control.hpp"
#include "core/tcp/tcp_message.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

using Kind = ControlPrefix::Kind;
using State = PeerStatus::State;
constexpr GroupIdentity kSelf{.token = {0x1234567890abcdef, 0xfedcba0987654321}, .group = 7, .rank = 0, .ranks = 2};
constexpr std::uint32_t kMany = 20;  // ranks of a group that relays
constexpr std::uint64_t kEpoch = (std::uint64_t{1} << 20U) | 1U;

void add_message(Bytes& bytes, Kind kind, std::span<const std::byte> body = {}) {
  append(bytes,
         ControlPrefix{
             .kind = kind, .token = kSelf.frame_token(), .length = static_cast<std::uint32_t>(body.size()), .rank = 1});
  bytes.insert(bytes.end(), body.begin(), body.end());
}

/// Ranks with equal statuses, and whether they have left.
void add_group(Bytes& body, const ControlStatus& status, std::uint64_t ranks, std::uint32_t left) {
  const std::vector<std::byte> said = encode(status);
  append(body,
         StatusGroup{.bytes = static_cast<std::uint32_t>(said.size()), .first_word = 0, .words = 1, .left = left});
  body.insert(body.end(), said.begin(), said.end());
  append(body, ranks);
}

Bytes post(std::uint64_t number, std::string_view text) {
  Bytes body;
  append(body, number);
  const auto bytes = std::as_bytes(std::span(text));
  body.insert(body.end(), bytes.begin(), bytes.end());
  return body;
}

std::vector<Bytes> control_seeds() {
  ControlStatus status{.version = 7, .completed = {0, 3, 1}, .started = {}};
  for (std::uint64_t sequence = 1; sequence <= TcpControl::kRemembered; ++sequence) {
    status.started.push_back({.sequence = sequence, .fingerprint = 5, .elements = 1024, .dtype = DType::bfloat16});
  }
  const Abort abort{Error::Kind::dead, {1, 3}, "rank 3 \xc3\xa9tait \xf0\x9f\x92\xa5 died during all_reduce #17"};
  const std::array<std::uint64_t, 4> question{3, 0, 17, 0};
  const auto inquiry = std::as_bytes(std::span(question));
  const std::array<std::int64_t, 3> time{17, 18, 19};
  const CallRequest call{.to = 0, .control = 1};
  std::vector<Bytes> seeds(7);
  add_message(seeds[0], Kind::inquire, inquiry);
  add_message(seeds[0], Kind::inquire, inquiry);
  add_message(seeds[1], Kind::status, encode(status));
  add_message(seeds[2], Kind::abort, encode(abort));
  add_message(seeds[3], Kind::inquire, inquiry);
  add_message(seeds[3], Kind::status, encode(ControlStatus{.version = 1, .completed = {}, .started = {}}));
  add_message(seeds[3], Kind::leave, encode(status));
  add_message(seeds[4], Kind::post, post(post_number(2, 1), "the ranks 0, 1 go on"));
  add_message(seeds[4], Kind::post, post(post_number(3, 1), ""));
  Bytes statuses;
  append(statuses, kEpoch);
  add_group(statuses, status, 0x42, 0);
  add_group(statuses, ControlStatus{.version = 9, .completed = {}, .started = {}}, 0x7ff00, 1);
  const std::array<std::uint64_t, 4> begin{kEpoch, 0, 17, 0};
  const std::string_view how = "closed its connection without a goodbye";
  add_message(seeds[5], Kind::inquire, std::as_bytes(std::span(begin)));
  add_message(seeds[5], Kind::statuses, statuses);
  add_message(seeds[5], Kind::dead, std::as_bytes(std::span(how)));
  add_message(seeds[6], Kind::ask_time, std::as_bytes(std::span(time).first(1)));
  add_message(seeds[6], Kind::time, std::as_bytes(std::span(time)));
  add_message(seeds[6], Kind::call, std::as_bytes(std::span(&call, 1)));
  return seeds;
}

struct Expected {
  State state = State::alive;
  bool aborted = false;
  bool known = false;
  bool whole = true;
  std::map<std::size_t, std::pair<std::uint64_t, std::string>> posts;  // by slot
};

bool right_status(std::span<const std::byte> body) {
  constexpr std::size_t kFirst = 32, kEach = 64, kCollective = 52, kDType = 53, kOp = 54, kPriority = 56;
  if (body.size() < kFirst || (body.size() - kFirst) % kEach != 0 || (body.size() - kFirst) / kEach > 48) return false;
  for (std::size_t at = kFirst; at < body.size(); at += kEach) {
    const auto byte = [&](std::size_t offset) { return static_cast<std::size_t>(body[at + offset]); };
    if (byte(kCollective) > static_cast<std::size_t>(Collective::scatter)) return false;
    if (byte(kDType) >= kDTypes.size() || byte(kOp) >= kReduceOps.size() || byte(kPriority) > 2) return false;
  }
  return true;
}

bool right_abort(std::span<const std::byte> body) {
  if (body.size() < 5 || static_cast<unsigned>(body[0]) > 5) return false;
  std::uint32_t count = 0;
  std::memcpy(&count, body.data() + 1, sizeof(count));
  return count <= 4096 && body.size() - 5 >= std::size_t{count} * 4;
}

bool right_post(std::span<const std::byte> body) { return body.size() >= 8 && body.size() <= 8 + 8000; }

/// The last message in each of 16 slots counts: 8 for even regroupings and 8 for odd ones, by round.
void remember(Expected& expected, std::span<const std::byte> body) {
  std::uint64_t number = 0;
  std::memcpy(&number, body.data(), sizeof(number));
  const std::size_t slot = 8 * (number / 0x100000000 % 2) + number % 8;
  const auto text = body.subspan(sizeof(number));
  expected.posts[slot] = {number, std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

bool right_call(std::span<const std::byte> body) {
  CallRequest call;
  if (body.size() != sizeof(call)) return false;
  std::memcpy(&call, body.data(), sizeof(call));
  return call.to < kSelf.ranks && call.control <= 1;
}

Expected read(std::span<const std::byte> input) {
  Expected expected;
  const auto disbelieve = [&] {
    expected.state = State::dead;
    return expected;
  };
  while (input.size() >= sizeof(ControlPrefix)) {
    ControlPrefix prefix;
    std::memcpy(&prefix, input.data(), sizeof(prefix));
    if (prefix.magic != ControlPrefix::kMagic || prefix.token != kSelf.frame_token() || prefix.rank != 1 ||
        prefix.length > 65536) {
      return disbelieve();
    }
    if (input.size() - sizeof(prefix) < prefix.length) break;
    const auto body = input.subspan(sizeof(prefix), prefix.length);
    if (prefix.kind == Kind::leave && right_status(body)) {
      expected.known = true;
      expected.state = State::left;
      return expected;
    }
    const bool right =
        (prefix.kind == Kind::inquire && body.size() == 32) || (prefix.kind == Kind::status && right_status(body)) ||
        (prefix.kind == Kind::ask_time && body.size() == 8) || (prefix.kind == Kind::time && body.size() == 24) ||
        (prefix.kind == Kind::abort && right_abort(body)) || (prefix.kind == Kind::post && right_post(body)) ||
        (prefix.kind == Kind::call && right_call(body));
    if (!right) return disbelieve();
    expected.aborted |= prefix.kind == Kind::abort;
    expected.known |= prefix.kind == Kind::status;
    if (prefix.kind == Kind::post) remember(expected, body);
    input = input.subspan(sizeof(prefix) + prefix.length);
  }
  expected.whole = input.empty();
  return expected;
}

std::pair<UniqueFd, UniqueFd> wire() {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no socket pair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TcpPeer at(std::uint32_t rank, UniqueFd wire) {
  return {.rank = rank, .endpoint = "the fuzzer", .control = TcpStream(std::move(wire)), .flows = {}};
}

template <typename Then>
void say(const UniqueFd& wire, std::span<const std::byte> input, const Then& then) {
  const std::size_t half = input.size() / 2;
  for (const std::span<const std::byte> piece : {input.first(half), input.subspan(half)}) {
    if (piece.empty()) continue;
    (void)!::send(wire.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    then();
  }
}

/// Rank 1 sends it to rank 0, which passes on to rank 2 what it accepts. True if it has accepted everything.
bool pass_on(std::span<const std::byte> input) {
  const auto member = [](std::uint32_t rank, std::span<TcpPeer> neighbours) {
    std::vector<std::uint32_t> others(kMany);
    std::iota(others.begin(), others.end(), 0U);
    others.erase(others.begin() + rank);
    const GroupIdentity identity{.token = kSelf.token, .group = kSelf.group, .rank = rank, .ranks = kMany};
    return TcpControl(identity, neighbours, nullptr, others);
  };
  auto [stranger, ear] = wire();
  auto [between, last] = wire();
  std::array<TcpPeer, 2> near{at(1, std::move(ear)), at(2, std::move(between))};
  std::array<TcpPeer, 1> far{at(0, std::move(last))};
  TcpControl relay = member(0, near);
  TcpControl third = member(2, far);
  say(stranger, input, [&] {
    for (int turn = 0; turn < 4; ++turn) {
      relay.progress();
      third.progress();
    }
  });
  require(third.status(0).state == State::alive, "what a rank passes on is not believed");
  require(third.aborted().has_value() == relay.aborted().has_value(), "an abort was not passed on, or made up");
  for (std::uint32_t rank = 1; rank < kMany; ++rank) {
    if (rank == 2) continue;
    require(third.status(rank).state == relay.status(rank).state, "an end was not passed on, or made up");
    require(!third.status(rank).known || relay.status(rank).known, "a status was made up");
  }
  return relay.end_of(1).find("cannot be believed") == std::string::npos;
}

bool take_messages(std::span<const std::byte> input) {
  const Expected expected = read(input);
  const bool relayed = pass_on(input);
  auto [peer, ear] = wire();
  std::array<TcpPeer, 1> peers{at(1, std::move(ear))};
  TcpControl control(kSelf, peers);
  say(peer, input, [&] { control.progress(); });
  const PeerStatus status = control.status(1);
  require(status.state == expected.state, "the peer's state is not what it said");
  require(control.aborted().has_value() == expected.aborted, "an abort was missed, or made up");
  require(status.known == expected.known, "a status was missed, or made up");
  for (const Descriptor& started : status.started) {
    require(!describe(started).empty(), "an operation that cannot be described");
  }
  for (const auto& [_, post] : expected.posts) {
    require(control.posted(1, post.first) == post.second, "a posted message was missed, or is another");
  }
  if (const auto abort = control.aborted()) {
    require(abort->ranks.size() <= 4096, "more ranks than there can be");
    require(legible(abort->sentence) == abort->sentence, "a sentence that cannot be shown");
  }
  return relayed || (expected.state != State::dead && expected.whole);
}

void end_of_messages() {}

}  // namespace

const Target kControl{"control", control_seeds, take_messages, end_of_messages};

}  // namespace syntony::fuzz

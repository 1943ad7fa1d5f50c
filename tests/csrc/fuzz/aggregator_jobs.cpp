// Strangers and bad workers at an aggregator that serves an honest job at the same time: its sums stay correct.
#include <cstring>
#include <memory>

#include "fuzz/honest_job.hpp"
#include "fuzz/knock.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr Token kHonest{11, 12};
constexpr std::array<std::uint64_t, 2> kToken{0x1234567890abcdef, 0xfedcba0987654321};
constexpr std::uint64_t kEvery = 500;  // inputs between two sums of the honest job

struct Switch {
  ServingAggregator aggregator{{.slots = 8, .slot_bytes = 256, .tenants = 4, .memory = std::size_t{1} << 20U}};
  TcpAddress door = aggregator.door();
  HonestJob job{door.text(), kHonest};

  static std::unique_ptr<Switch>& only() {
    static auto* only = new std::unique_ptr<Switch>(new Switch);
    return *only;
  }
};

void add_frame(Bytes& bytes, AggregationFrame::Kind kind, std::span<const std::byte> body) {
  append(bytes, AggregationFrame{.kind = kind, .token = kToken[0], .length = static_cast<std::uint32_t>(body.size())});
  bytes.insert(bytes.end(), body.begin(), body.end());
}

Bytes greeting() {
  Bytes bytes;
  append(bytes, AggregationHello{.token = kToken, .timeout_ms = 1000, .port = 9});
  return bytes;
}

/// Jobs of one worker get as far as jobs can.
std::vector<Bytes> aggregator_seeds() {
  using Kind = AggregationFrame::Kind;
  std::vector<Bytes> seeds(2, greeting());
  add_frame(seeds[0], Kind::late, Bytes(8));
  add_frame(seeds[0], Kind::leave, {});
  add_frame(seeds[1], Kind::failure, Bytes(sizeof(AggregationFailure) + 5));
  return seeds;
}

bool take_job(std::span<const std::byte> input) {
  static std::uint64_t number = 0;
  constexpr std::size_t kTokenAt = 8;
  if (input.size() >= kTokenAt + sizeof(kHonest) &&
      std::memcmp(input.data() + kTokenAt, kHonest.data(), sizeof(kHonest)) == 0) {
    return true;  // a sender that knows the token may join
  }
  const std::unique_ptr<Switch>& one = Switch::only();
  const Bytes answer = answer_of(one->door, input);
  if (++number % kEvery == 0) one->job.require_right_sums();
  AggregationFrame frame{.kind = AggregationFrame::Kind::failure};
  if (answer.size() >= sizeof(AggregationChallenge) + sizeof(frame)) {
    std::memcpy(&frame, answer.data() + sizeof(AggregationChallenge), sizeof(frame));
  }
  return frame.kind == AggregationFrame::Kind::welcome;
}

void end_of_jobs() {
  Switch::only()->job.require_right_sums();
  Switch::only().reset();
}

}  // namespace

const Target kAggregator{"aggregator", aggregator_seeds, take_job, end_of_jobs};

}  // namespace syntony::fuzz

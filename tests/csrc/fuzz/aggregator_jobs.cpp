// Strangers and bad workers at an aggregator, which has an honest job at the same time: its sums stay right.
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "core/in_network/aggregation_client.hpp"
#include "emulation/aggregator/aggregator.hpp"
#include "fuzz/knock.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr std::size_t kSlotBytes = 256;
constexpr Token kHonest{11, 12};
constexpr std::array<std::uint64_t, 2> kToken{0x1234567890abcdef, 0xfedcba0987654321};
constexpr std::uint64_t kEvery = 500;  // inputs between two sums of the honest job

/// An aggregator with a job of two workers.
class Switch {
 public:
  Switch()
      : aggregator_({.slots = 8, .slot_bytes = kSlotBytes, .tenants = 4, .memory = std::size_t{1} << 20U}),
        door_(aggregator_.address()),
        serving_([this] {
          try {
            aggregator_.run([this] { return !over_; });
          } catch (const std::exception& error) {
            fault(std::string("the aggregator gave up: ") + error.what());
          }
        }) {
    both([this](std::size_t rank) {
      workers_[rank] = std::make_unique<AggregationClient>(
          AggregationWays{.by_rank = {door_.text(), door_.text()}, .secret = {}}, kHonest,
          static_cast<std::uint32_t>(rank), std::chrono::seconds(60), [] {});
    });
  }

  ~Switch() {
    for (auto& worker : workers_) worker.reset();
    over_ = true;
    serving_.join();
  }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  static std::unique_ptr<Switch>& only() {
    static auto* only = new std::unique_ptr<Switch>(new Switch);
    return *only;
  }

  [[nodiscard]] const TcpAddress& door() const { return door_; }

  void require_right_sums() {
    both([this](std::size_t rank) {
      std::array<float, 300> data{};
      data.fill(static_cast<float>(rank + 1));
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      workers_[rank]->all_reduce(NumberFormat::float32, DType::float32, bytes, bytes, data.size(),
                                 std::chrono::seconds(60), [] {});
      for (const float element : data) require(element == 3.0F, "the honest job's sum is wrong");
    });
  }

 private:
  template <typename Action>
  void both(Action action) {
    const auto guarded = [&](std::size_t rank) {
      try {
        action(rank);
      } catch (const std::exception& error) {
        fault(std::string("the honest job was disturbed: ") + error.what());
      }
    };
    std::thread other(guarded, 1);
    guarded(0);
    other.join();
  }

  Aggregator aggregator_;
  TcpAddress door_;
  std::atomic<bool> over_{false};
  std::thread serving_;
  std::array<std::unique_ptr<AggregationClient>, 2> workers_;
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
    return true;  // who knows the token may come in
  }
  const std::unique_ptr<Switch>& one = Switch::only();
  const Bytes answer = answer_of(one->door(), input);
  if (++number % kEvery == 0) one->require_right_sums();
  AggregationFrame frame{.kind = AggregationFrame::Kind::failure};
  if (answer.size() >= sizeof(AggregationChallenge) + sizeof(frame)) {
    std::memcpy(&frame, answer.data() + sizeof(AggregationChallenge), sizeof(frame));
  }
  return frame.kind == AggregationFrame::Kind::welcome;
}

void end_of_jobs() {
  Switch::only()->require_right_sums();
  Switch::only().reset();
}

}  // namespace

const Target kAggregator{"aggregator", aggregator_seeds, take_job, end_of_jobs};

}  // namespace syntony::fuzz

#include "fuzz/honest_job.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr std::chrono::seconds kPatience{60};

template <typename Action>
void on_both(Action action) {
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

}  // namespace

ServingAggregator::ServingAggregator(AggregatorOptions options)
    : aggregator_(std::move(options)), thread_([this] {
        try {
          aggregator_.run([this] { return !over_; });
        } catch (const std::exception& error) {
          fault(std::string("the aggregator gave up: ") + error.what());
        }
      }) {}

ServingAggregator::~ServingAggregator() {
  over_ = true;
  thread_.join();
}

HonestJob::HonestJob(const std::string& way, const Token& token) {
  on_both([&](std::size_t rank) {
    workers_[rank] = std::make_unique<AggregationClient>(AggregationWays{.by_rank = {way, way}, .secret = {}}, token,
                                                         static_cast<std::uint32_t>(rank), kPatience, [] {});
  });
}

void HonestJob::require_right_sums() {
  on_both([this](std::size_t rank) {
    std::array<float, 300> data{};
    data.fill(static_cast<float>(rank + 1));
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    workers_[rank]->all_reduce(NumberFormat::float32, DType::float32, bytes, bytes, data.size(), kPatience, [] {});
    for (const float element : data) require(element == 3.0F, "the honest job's sum is wrong");
  });
}

}  // namespace syntony::fuzz

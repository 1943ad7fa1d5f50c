// An aggregator, and a job of two workers whose sums stay correct whatever others send there.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "core/in_network/aggregation_client.hpp"
#include "emulation/aggregator/aggregator.hpp"

namespace syntony::fuzz {

/// An aggregator that serves on a thread of its own. Calls fault() when it gives up.
class ServingAggregator {
 public:
  explicit ServingAggregator(AggregatorOptions options);
  ~ServingAggregator();
  ServingAggregator(const ServingAggregator&) = delete;
  ServingAggregator& operator=(const ServingAggregator&) = delete;

  [[nodiscard]] TcpAddress door() const { return aggregator_.address(); }

 private:
  Aggregator aggregator_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Its workers are threads of this process.
class HonestJob {
 public:
  /// `way`: the addresses of the aggregators, bottom-up, separated by commas.
  HonestJob(const std::string& way, const Token& token);

  /// Computes a sum; fault() if it is wrong or does not arrive.
  void require_right_sums();

 private:
  std::array<std::unique_ptr<AggregationClient>, 2> workers_;
};

}  // namespace syntony::fuzz

// A rank's connection to its group's aggregator, on a thread of its own:
//
//      owner of progress ── start() ──▶ [ 3 | 2 ] ──▶ thread: joins, then 1: chunks out, sums in ──▶ aggregator
//                  ▲                                                   │
//                  └───────────────────── ring ◀── done, or an error ──┘
//
// So the group's own threads never wait for an aggregator and keep noticing deaths. Operations run one after another in
// the order in which they were started, which is the same on every rank. If there are several trees of aggregators,
// each sums its part of every buffer, all concurrently, with a congestion window of its own (PANAMA, Gebara et al.,
// MLSys'21).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/call.hpp"
#include "core/in_network/aggregation_ways.hpp"
#include "core/in_network/number_format.hpp"
#include "core/process/host.hpp"

namespace syntony {

/// The format in which a call is sent: its elements as they are. None if aggregators cannot run it: anything but a sum
/// in a format that they add.
[[nodiscard]] std::optional<NumberFormat> aggregated_as(const Call& call);

class AggregationClient;

class AggregationThread {
 public:
  /// One all_reduce in flight.
  struct Job {
    NumberFormat format;
    DType dtype;
    const std::byte* input;
    std::byte* output;
    std::size_t elements;
    Lifetime lifetime;
    std::atomic<bool> done{false};
    std::exception_ptr error;  // once done
  };

  /// Joins with the first operation. `ring` is called from the thread when an operation is done.
  AggregationThread(AggregationWays ways, const Token& token, std::uint32_t rank, std::function<void()> ring);
  /// Abandons operations in flight: their buffers are not touched any more.
  ~AggregationThread();
  AggregationThread(const AggregationThread&) = delete;
  AggregationThread& operator=(const AggregationThread&) = delete;

  /// The call must be an all_reduce that `aggregated_as` accepts; its buffers must outlive the Job, or this.
  std::shared_ptr<const Job> start(const Call& call, const Lifetime& lifetime);

 private:
  void run();
  void sum(const Job& job);

  AggregationWays ways_;
  std::vector<AggregationWays> trees_;  // once the first operation has begun, as
  std::vector<std::unique_ptr<AggregationClient>> clients_;
  Token token_;
  std::uint32_t rank_;
  std::function<void()> ring_;
  std::mutex mutex_;  // guards the next
  std::deque<std::shared_ptr<Job>> jobs_;
  std::condition_variable more_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace syntony

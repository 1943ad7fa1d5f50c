#include "core/in_network/aggregation_thread.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.hpp"
#include "core/in_network/aggregation_client.hpp"
#include "core/process/log.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortest{1};

/// What is thrown inside the thread when its group is at its end.
struct Stopped : std::exception {};

milliseconds left_of(const Lifetime& lifetime) {
  const auto left = lifetime.deadline - std::chrono::steady_clock::now();
  return std::max(kShortest, std::chrono::duration_cast<milliseconds>(left));
}

}  // namespace

std::optional<NumberFormat> aggregated_as(const Call& call) {
  if (call.collective != Collective::all_reduce || call.op != ReduceOp::sum) return std::nullopt;
  const auto format = number_format_named(name_of(call.dtype));
  return format && verbatim(*format, call.dtype) ? format : std::nullopt;
}

AggregationThread::AggregationThread(AggregationWays ways, const Token& token, std::uint32_t rank,
                                     std::function<void()> ring)
    : ways_(std::move(ways)), token_(token), rank_(rank), ring_(std::move(ring)), thread_([this] { run(); }) {}

AggregationThread::~AggregationThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_one();
  thread_.join();
}

std::shared_ptr<const AggregationThread::Job> AggregationThread::start(const Call& call, const Lifetime& lifetime) {
  const Block& buffer = call.blocks.front();
  auto job =
      std::make_shared<Job>(*aggregated_as(call), call.dtype, buffer.input, buffer.output, buffer.elements, lifetime);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  more_.notify_one();
  return job;
}

void AggregationThread::run() {
  const auto interrupt = [this] {
    if (stop_) throw Stopped{};
  };
  std::unique_ptr<AggregationClient> client;
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      if (!client) {
        client = std::make_unique<AggregationClient>(ways_, token_, rank_, left_of(job->lifetime), interrupt);
      }
      client->all_reduce(job->format, job->dtype, job->input, job->output, job->elements, left_of(job->lifetime),
                         interrupt);
    } catch (const Stopped&) {
      return;
    } catch (...) {
      job->error = std::current_exception();
    }
    job->done.store(true, std::memory_order_release);
    ring_();
  }
}

}  // namespace syntony

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

/// Thrown inside the thread when its group ends.
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
      sum(*job);
    } catch (const Stopped&) {
      return;
    } catch (...) {
      job->error = std::current_exception();
    }
    job->done.store(true, std::memory_order_release);
    ring_();
  }
}

/// Throws the first error of a tree; the other trees are then given up.
void AggregationThread::sum(const Job& job) {
  if (trees_.empty()) {
    trees_ = ways_.trees();
    clients_.resize(trees_.size());
  }
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the tree that has set `failed`
  const auto in_tree = [&](std::size_t tree) {
    try {
      const auto interrupt = [&] {
        if (stop_ || failed) throw Stopped{};
      };
      std::unique_ptr<AggregationClient>& client = clients_[tree];
      if (!client) {
        const Token token{token_[0] + tree, token_[1] + tree};
        client = std::make_unique<AggregationClient>(trees_[tree], token, rank_, left_of(job.lifetime), interrupt);
      }
      const std::size_t begin = job.elements * tree / trees_.size();
      const std::size_t end = job.elements * (tree + 1) / trees_.size();
      const std::size_t offset = begin * wire_bytes(job.format);
      client->all_reduce(job.format, job.dtype, job.input + offset, job.output + offset, end - begin,
                         left_of(job.lifetime), interrupt);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t tree = 1; tree < trees_.size(); ++tree) others.emplace_back(in_tree, tree);
    in_tree(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace syntony

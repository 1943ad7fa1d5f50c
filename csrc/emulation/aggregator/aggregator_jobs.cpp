// Jobs of an aggregator: who may join, what a frame may be, when a sum is complete, and how a job ends.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "core/kernels/kernels.hpp"
#include "emulation/aggregator/aggregator.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string rank_named(std::uint32_t rank) { return "rank " + std::to_string(rank); }

std::string left(std::uint32_t rank, std::uint32_t operation) {
  return rank_named(rank) + " left the job before operation " + std::to_string(operation);
}

}  // namespace

// ---- who and what ---------------------------------------------------------------------------------------------------

void Aggregator::greet(Worker& worker, const AggregationHello& hello) {
  if (hello.magic != kAggregationMagic || hello.zero != 0) {
    worker.closed = true;  // a stranger, who is owed no answer
    return;
  }
  worker.deadline = Clock::time_point::max();
  worker.token = hello.token[0];
  if (hello.version != kAggregationVersion) {
    return refuse(worker, Error::Kind::mismatch, kNobody,
                  "the aggregator speaks version " + std::to_string(kAggregationVersion) + ", this worker version " +
                      std::to_string(hello.version));
  }
  if (hello.ranks < 1 || hello.ranks > kMostWorkers || hello.rank >= hello.ranks) {
    return refuse(worker, Error::Kind::invalid, kNobody,
                  rank_named(hello.rank) + " of " + std::to_string(hello.ranks) +
                      " is no worker; an aggregator takes " + "1 to " + std::to_string(kMostWorkers));
  }
  if (!options_.secret.empty() && hello.proof != proof_of(options_.secret, worker.nonce, hello)) {
    return refuse(worker, Error::Kind::aborted, hello.rank,
                  rank_named(hello.rank) +
                      " does not know the secret of the aggregator: SYNTONY_SECRET should be set " +
                      "to one value there and at all workers");
  }
  auto job = std::ranges::find(jobs_, hello.token, &Job::token);
  const bool full = tenants() >= options_.tenants;
  const std::string serves = "the aggregator serves " + std::to_string(tenants()) + " of " +
                             std::to_string(options_.tenants) + " jobs already";
  if (job == jobs_.end()) {
    if (full) return refuse(worker, Error::Kind::aborted, kNobody, serves);
    const std::size_t slots = options_.shared ? options_.slots : options_.slots / options_.tenants;
    if (slots * capacity_ * (hello.ranks + 1) > options_.memory) {
      return refuse(worker, Error::Kind::aborted, kNobody,
                    "slots for " + std::to_string(hello.ranks) +
                        " workers would take more memory than the aggregator " + "may use");
    }
    job = jobs_.emplace(jobs_.end());
    job->token = hello.token;
    job->workers.resize(hello.ranks);
    job->pool = options_.shared ? common_ : std::make_shared<SlotPool>(slots, capacity_);
    job->window = window_of(slots, options_.slot_bytes);
    job->deadline = Clock::now() + milliseconds(hello.timeout_ms);
  }
  if (job->workers.size() != hello.ranks) {
    const std::string others = std::to_string(job->workers.size());
    refuse(worker, Error::Kind::mismatch, hello.rank, "this job has " + others + " workers");
    return fail(*job, Error::Kind::mismatch, hello.rank,
                rank_named(hello.rank) + " says that the job has " + std::to_string(hello.ranks) +
                    " workers, the others say " + others);
  }
  if (job->workers[hello.rank] != nullptr || job->joined == job->workers.size()) {
    return refuse(worker, Error::Kind::mismatch, hello.rank, "this job has a " + rank_named(hello.rank) + " already");
  }
  job->workers[hello.rank] = &worker;
  worker.job = &*job;
  worker.rank = hello.rank;
  if (job->joined + 1 == job->workers.size() && full) return fail(*job, Error::Kind::aborted, kNobody, serves);
  if (++job->joined == job->workers.size()) welcome(*job);
}

/// Jobs whose workers have all come: until then a job holds nothing that another one could need.
std::size_t Aggregator::tenants() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(jobs_, [](const Job& job) { return job.joined == job.workers.size(); }));
}

void Aggregator::welcome(Job& job) {
  job.deadline = Clock::time_point::max();
  for (Worker* worker : job.workers) {
    Outgoing message;
    message.frame.kind = AggregationFrame::Kind::welcome;
    message.body = bytes_of(
        AggregationWelcome{static_cast<std::uint32_t>(job.window), static_cast<std::uint32_t>(options_.slot_bytes)});
    post(*worker, std::move(message));
  }
}

void Aggregator::begin_operation(Worker& worker) {
  Job& job = *worker.job;
  if (job.joined < job.workers.size()) return nonsense(worker, "an operation before all workers had come");
  const AggregationBegin& begin = worker.begin;
  ++worker.operation;
  if (worker.operation > job.operation) {
    if (job.completed < job.plan.chunks()) return nonsense(worker, "an operation before the last one had ended");
    for (std::uint32_t rank = 0; rank < job.workers.size(); ++rank) {
      if (job.workers[rank] == nullptr) {
        return fail(job, Error::Kind::dead, rank, left(rank, worker.operation));
      }
    }
    if (begin.format >= kNumberFormats.size() || begin.elements == 0 || begin.elements > (std::uint64_t{1} << 40U)) {
      return nonsense(worker, "an operation that cannot be");
    }
    const auto format = static_cast<NumberFormat>(begin.format);
    if (!options_.formats.empty() && std::ranges::find(options_.formats, format) == options_.formats.end()) {
      std::string known;
      for (const NumberFormat one : options_.formats) known += (known.empty() ? "" : ", ") + std::string(name_of(one));
      return fail(job, Error::Kind::mismatch, worker.rank,
                  "this aggregator adds " + known + ", not " + std::string(name_of(format)));
    }
    if (job.workers.size() > most_workers(format)) {
      return fail(job, Error::Kind::mismatch, worker.rank,
                  std::string(name_of(format)) + " adds at most " + std::to_string(most_workers(format)) + " workers");
    }
    const AggregationPlan plan(format, begin.elements, job.window, options_.slot_bytes);
    if (plan.chunks() >= kAhead) return nonsense(worker, "an operation of too many chunks");
    job.operation = worker.operation;
    job.starter = worker.rank;
    job.begin = begin;
    job.plan = plan;
    job.completed = 0;
    job.deadline = Clock::now() + milliseconds(begin.timeout_ms);
  } else {
    AggregationBegin same = begin;
    same.timeout_ms = job.begin.timeout_ms;  // each may be as patient as it likes
    if (same != job.begin || begin.format >= kNumberFormats.size()) {
      const std::string format = begin.format < kNumberFormats.size()
                                     ? std::string(name_of(static_cast<NumberFormat>(begin.format)))
                                     : "an unknown format";
      return fail(job, Error::Kind::mismatch, kNobody,
                  "the ranks disagree about operation " + std::to_string(job.operation) + ": " +
                      rank_named(worker.rank) + " brings " + std::to_string(begin.elements) + " elements in " + format +
                      ", " + rank_named(job.starter) + " " + std::to_string(job.begin.elements) + " in " +
                      std::string(name_of(job.plan.format)));
    }
  }
  worker.next = 0;
  worker.ahead = job.plan.scaled();
}

std::string Aggregator::told(const Job& job) const {
  return "operation " + std::to_string(job.operation) + " (" + std::to_string(job.plan.elements) + " elements in " +
         std::string(name_of(job.plan.format)) + ")";
}

// ---- sums -----------------------------------------------------------------------------------------------------------

/// Finds the slot that a chunk goes to; false when there is none (yet).
bool Aggregator::place_chunk(Worker& worker) {
  Job& job = *worker.job;
  const AggregationFrame& frame = worker.frame;
  const bool ahead = frame.kind == AggregationFrame::Kind::exponents;
  const std::uint32_t chunk = ahead ? kAhead : worker.next;
  const bool expected = worker.operation == job.operation && worker.operation > 0 &&
                        frame.operation == worker.operation && ahead == worker.ahead &&
                        frame.chunk == (ahead ? 0 : chunk);
  if (!expected || (!ahead && (chunk >= job.plan.chunks() || chunk >= job.completed + job.window)) ||
      frame.length != (ahead ? job.plan.exponents_ahead() : job.plan.length(chunk))) {
    nonsense(worker, "a chunk that is not its turn");
    return false;
  }
  const auto at = job.open.find(chunk);
  worker.slot = at != job.open.end() ? at->second : job.pool->take(job.workers.size());
  if (!worker.slot) {
    worker.starved = true;
    watch(worker);
    return false;
  }
  if (at == job.open.end()) job.open.emplace(chunk, worker.slot);
  return true;
}

/// Slots that became free go to those that wait, the one that was served last comes last.
void Aggregator::feed_starved() {
  std::size_t untried = workers_.size();
  for (auto at = workers_.begin(); untried > 0; --untried) {
    Worker& worker = *at++;
    if (!worker.starved || worker.closed || worker.closing || worker.job == nullptr) continue;
    const Job& job = *worker.job;
    if (job.pool->left() == 0 && !job.open.contains(worker.ahead ? kAhead : worker.next)) continue;
    worker.starved = false;
    if (!place_chunk(worker)) continue;
    watch(worker);
    workers_.splice(workers_.end(), workers_, std::prev(at));
  }
}

void Aggregator::finish_chunk(Worker& worker) {
  Job& job = *worker.job;
  const std::shared_ptr<Slot> slot = std::move(worker.slot);
  const bool ahead = worker.ahead;
  const std::uint32_t chunk = ahead ? kAhead : worker.next;
  if (ahead) {
    worker.ahead = false;
  } else {
    ++worker.next;
  }
  if (++slot->arrived < job.workers.size()) return;
  job.open.erase(chunk);
  std::vector<const std::byte*> parts(job.workers.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = slot->part(rank);
  const std::size_t payload = ahead ? 0 : job.plan.payload(chunk);
  if (!ahead) add_on_wire(job.plan.format, slot->sum.data(), parts, job.plan.count(chunk));
  if (const std::size_t exponents = ahead ? job.plan.exponents_ahead() : job.plan.exponents_with(chunk)) {
    for (const std::byte*& part : parts) part += payload;
    reduce(DType::uint8, ReduceOp::max, slot->sum.data() + payload, parts, exponents);
  }
  if (!ahead && ++job.completed == job.plan.chunks()) job.deadline = Clock::time_point::max();
  for (Worker* member : job.workers) {
    if (member == nullptr) continue;
    Outgoing message;
    message.frame = worker.frame;
    message.slot = slot;
    post(*member, std::move(message));
  }
}

void Aggregator::check_deadlines(Clock::time_point now) {
  for (Worker& worker : workers_) {
    if (now >= worker.deadline) worker.closed = true;  // a stranger, or one that does not read its last words
  }
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = *at++;
    if (now < job.deadline) continue;
    const auto begun = [&job](const Worker* worker) { return worker != nullptr && worker->operation == job.operation; };
    const bool scaling = job.operation > 0 && std::ranges::any_of(job.workers, [&begun](const Worker* worker) {
                           return begun(worker) && worker->ahead;
                         });
    std::string missing;
    std::uint32_t first = kNobody;
    for (std::uint32_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker* worker = job.workers[rank];
      const bool late =
          !begun(worker) || (job.operation > 0 && (scaling ? worker->ahead : worker->next <= job.completed));
      if (!late) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      first = std::min(first, rank);
    }
    const std::string what = job.joined < job.workers.size() ? "did not come to the aggregator in time"
                                                             : "did not bring its part of " + told(job) + " in time";
    fail(job, Error::Kind::timeout, first, "rank " + missing + " " + what);
  }
}

// ---- ends -----------------------------------------------------------------------------------------------------------

void Aggregator::leave(Worker& worker) {
  Job& job = *worker.job;
  const bool early = worker.operation < job.operation;
  if (!early && (worker.next < job.plan.chunks() || job.joined < job.workers.size())) return lost(worker);
  job.workers[worker.rank] = nullptr;
  worker.job = nullptr;
  worker.closing = true;
  worker.deadline = Clock::now() + kPatience;
  write_to(worker);
  if (early) return fail(job, Error::Kind::dead, worker.rank, left(worker.rank, job.operation));
  if (std::ranges::all_of(job.workers, [](const Worker* member) { return member == nullptr; })) end(job);
}

void Aggregator::lost(Worker& worker) {
  worker.closed = true;
  if (worker.job == nullptr) return;
  Job& job = *worker.job;
  const std::uint32_t rank = worker.rank;
  job.workers[rank] = nullptr;
  worker.job = nullptr;
  const bool busy = job.operation > 0 && job.completed < job.plan.chunks();
  fail(job, Error::Kind::dead, rank,
       rank_named(rank) + " is gone: its connection to the aggregator closed" + (busy ? " during " + told(job) : ""));
}

void Aggregator::fail(Job& job, Error::Kind kind, std::uint32_t rank, const std::string& sentence) {
  for (Worker* worker : job.workers) {
    if (worker == nullptr) continue;
    refuse(*worker, kind, rank, sentence);
    worker->job = nullptr;
  }
  end(job);
}

void Aggregator::nonsense(Worker& worker, const std::string& what) {
  fail(*worker.job, Error::Kind::mismatch, worker.rank, rank_named(worker.rank) + " sent the aggregator " + what);
}

void Aggregator::refuse(Worker& worker, Error::Kind kind, std::uint32_t rank, const std::string& sentence) {
  Outgoing message;
  message.frame.kind = AggregationFrame::Kind::failure;
  message.body = bytes_of(AggregationFailure{static_cast<std::uint32_t>(kind), rank});
  for (const char letter : sentence.substr(0, kLongestSentence)) message.body.push_back(static_cast<std::byte>(letter));
  worker.closing = true;
  worker.starved = false;
  worker.slot.reset();
  worker.deadline = Clock::now() + kPatience;
  post(worker, std::move(message));
  watch(worker);
}

void Aggregator::end(Job& job) {
  jobs_.remove_if([&job](const Job& other) { return &other == &job; });
}

}  // namespace syntony

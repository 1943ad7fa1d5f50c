// For the sanitizers: ranks as threads of one process, each with its own progress engine or all sharing one, that use
// all features of the runtime concurrently: first fixed rounds, then for some seconds random calls in three groups by
// two threads per rank, while a third thread reads the records. Prints "ok" and returns 0, or says what was wrong.
//
//      stress RANKS own|shared shm|tcp|both ROUNDS SECONDS
//
//      tcp: every rank believes to be on a host of its own; both: on one of two hosts, by turns
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/group/communicator.hpp"
#include "core/process/host.hpp"
#include "core/progress/progress_engine.hpp"
#include "core/recorder/recorder_dump.hpp"
#include "introduction.hpp"
#include "require.hpp"

namespace {

using syntony::Block;
using syntony::CallOptions;
using syntony::Collective;
using syntony::Communicator;
using syntony::DType;
using syntony::Error;
using syntony::Priority;
using syntony::ProgressEngine;
using syntony::Recorder;
using syntony::ReduceOp;
using syntony::Work;

/// Where the threads meet.
class Meeting {
 public:
  explicit Meeting(std::uint32_t size) : size_(size) {}

  std::vector<std::string> gather(const std::string& name, std::uint32_t rank, const std::string& blob) {
    std::unique_lock lock(mutex_);
    std::map<std::uint32_t, std::string>& came = came_[name];
    came[rank] = blob;
    changed_.notify_all();
    changed_.wait(lock, [&] { return came.size() == size_; });
    std::vector<std::string> blobs;
    for (const auto& [_, their] : came) blobs.push_back(their);
    return blobs;
  }

 private:
  const std::uint32_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::map<std::uint32_t, std::string>> came_;
};

/// How ranks are spread over hosts: all on one, each on its own, or two.
struct Hosts {
  std::uint32_t number;
  [[nodiscard]] std::string of(std::uint32_t rank) const { return std::to_string(rank % number); }
};

class ThreadBootstrap final : public syntony::Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, std::string group, std::uint32_t rank, std::uint32_t size, Hosts hosts)
      : meeting_(meeting), group_(std::move(group)), rank_(rank), size_(size), hosts_(hosts) {}
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override {
    return meeting_.gather(group_ + "/" + name, rank_, name == "introduce" ? on_host(hosts_.of(rank_), blob) : blob);
  }

 private:
  Meeting& meeting_;
  std::string group_;
  std::uint32_t rank_, size_;
  Hosts hosts_;
};

constexpr std::optional<Priority> kClasses[] = {std::nullopt, Priority::low, Priority::normal, Priority::high};

struct Reduction {
  std::vector<std::int64_t> data;
  std::int64_t expected;
  std::shared_ptr<Work> work;
};

/// Random collectives and messages whose results are known. All ranks use the same seed, so they make the same calls.
class RandomCalls {
 public:
  RandomCalls(Communicator& group, std::uint64_t seed)
      : group_(group), rank_(group.rank()), size_(group.size()), dice_(seed) {}

  void call() {
    const std::uint64_t sizes[] = {1, 2, 7, 1000, 1 + dice_() % 40'000};
    count_ = sizes[dice_() % 5];
    root_ = static_cast<std::uint32_t>(dice_() % size_);
    options_.async = (dice_() + rank_) % 2 == 0;
    options_.priority = kClasses[dice_() % 4];
    options_.partition = dice_() % 4 == 0 ? 10'000 : 0;
    switch (dice_() % 8) {
      case 0:
        return all_gather();
      case 1:
        return reduce_scatter();
      case 2:
        return all_to_all();
      case 3:
        return broadcast();
      case 4:
        return messages();
      case 5:
        return regroup();
      default:
        return all_reduce(group_);
    }
  }

 private:
  using Data = std::vector<std::int64_t>;

  static std::byte* block(Data& data, std::size_t index, std::size_t count) {
    return reinterpret_cast<std::byte*>(data.data() + index * count);
  }

  /// A call that is not async may return no Work.
  static void finish(const std::shared_ptr<Work>& work) {
    if (work) work->wait();
  }

  void run(Communicator& group, Collective collective, std::vector<Block> blocks) {
    finish(group.run({.collective = collective,
                      .dtype = DType::int64,
                      .root = root_,
                      .blocks = std::move(blocks),
                      .options = options_}));
  }

  /// Block i of `data` must be first + i * step everywhere.
  void expect(const Data& data, std::int64_t first, std::int64_t step, const char* what) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      require(data[i] == first + static_cast<std::int64_t>(i / count_) * step, what);
    }
  }

  void all_reduce(Communicator& group) {
    Data data(count_, group.rank());
    run(group, Collective::all_reduce, {Block{block(data, 0, count_), block(data, 0, count_), count_}});
    expect(data, std::int64_t{group.size()} * (group.size() - 1) / 2, 0, "a random sum");
  }

  void all_gather() {
    Data input(count_, rank_), output(count_ * size_);
    std::vector<Block> blocks;
    for (std::uint32_t r = 0; r < size_; ++r) {
      blocks.push_back({r == rank_ ? block(input, 0, count_) : nullptr, block(output, r, count_), count_});
    }
    run(group_, Collective::all_gather, blocks);
    expect(output, 0, 1, "an all_gather");
  }

  void reduce_scatter() {
    Data input(count_ * size_), output(count_);
    std::vector<Block> blocks;
    for (std::uint32_t r = 0; r < size_; ++r) {
      std::fill_n(input.begin() + static_cast<std::ptrdiff_t>(r * count_), count_, r);
      blocks.push_back({block(input, r, count_), r == rank_ ? block(output, 0, count_) : nullptr, count_});
    }
    run(group_, Collective::reduce_scatter, blocks);
    expect(output, std::int64_t{rank_} * size_, 0, "a reduce_scatter");
  }

  void all_to_all() {
    Data input(count_ * size_), output(count_ * size_);
    std::vector<Block> blocks(std::size_t{size_} * size_, Block{nullptr, nullptr, count_});
    for (std::uint32_t r = 0; r < size_; ++r) {
      std::fill_n(input.begin() + static_cast<std::ptrdiff_t>(r * count_), count_, 2 * rank_ + r);
      blocks[rank_ * size_ + r].input = block(input, r, count_);
      blocks[r * size_ + rank_].output = block(output, r, count_);
    }
    run(group_, Collective::all_to_all, blocks);
    expect(output, rank_, 2, "an all_to_all");
  }

  void broadcast() {
    Data data(count_, rank_);
    run(group_, Collective::broadcast,
        {Block{rank_ == root_ ? block(data, 0, count_) : nullptr, block(data, 0, count_), count_}});
    expect(data, root_, 0, "a broadcast");
  }

  void messages() {
    const std::uint32_t right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
    Data out(count_, rank_), in(count_);
    CallOptions async;
    async.async = true;
    const auto sent = group_.send(block(out, 0, count_), count_ * sizeof(out[0]), right, root_, async);
    finish(group_.receive(block(in, 0, count_), count_ * sizeof(in[0]), static_cast<int>(left), root_, options_));
    sent->wait();
    expect(in, left, 0, "a random message");
  }

  /// Rarely, because it takes long compared with the others.
  void regroup() {
    if (dice_() % 4 != 0) return all_reduce(group_);
    const std::shared_ptr<Communicator> part = group_.split(rank_ % 2, 0, {.timeout = {}});
    root_ = 0;
    all_reduce(*part);
  }

  Communicator& group_;
  const std::uint32_t rank_, size_;
  std::mt19937_64 dice_;
  std::size_t count_ = 0;
  std::uint32_t root_ = 0;
  CallOptions options_;
};

class Rank {
 public:
  Rank(Meeting& meeting, std::shared_ptr<ProgressEngine> engine, std::uint32_t rank, std::uint32_t size, Hosts hosts)
      : meeting_(meeting), engine_(std::move(engine)), rank_(rank), size_(size), hosts_(hosts), world_(join("world")) {}

  /// Returns the number of random calls.
  std::size_t run(int rounds, std::chrono::seconds seconds) {
    for (int round = 0; round < rounds; ++round) {
      in_flight(round);
      blocking(round);
      messages(round);
      two_groups(round);
      split_up(round);
      in_a_failing_group(round);
    }
    const std::size_t calls = at_random(seconds);
    world_->barrier();
    world_->shutdown();
    return calls;
  }

 private:
  std::unique_ptr<Communicator> join(const std::string& name) {
    ThreadBootstrap bootstrap(meeting_, name, rank_, size_, hosts_);
    return std::make_unique<Communicator>(
        engine_, bootstrap, syntony::CommunicatorOptions{.timeout = std::chrono::seconds(60), .name = name});
  }

  Reduction start(Communicator& group, std::size_t count, std::int64_t value, const std::string& algorithm, bool async,
                  std::optional<Priority> priority = std::nullopt) {
    const std::int64_t size = group.size();
    Reduction reduction{std::vector<std::int64_t>(count, value + group.rank()), 0, nullptr};
    reduction.expected = size * value + size * (size - 1) / 2;
    auto* bytes = reinterpret_cast<std::byte*>(reduction.data.data());
    CallOptions options;
    options.algorithm = algorithm;
    options.async = async;
    options.priority = priority;
    reduction.work = group.run({.dtype = DType::int64, .blocks = {Block{bytes, bytes, count}}, .options = options});
    return reduction;
  }

  void finish(Reduction& reduction) {
    if (reduction.work) reduction.work->wait();
    for (const std::int64_t element : reduction.data) require(element == reduction.expected, "a sum");
  }

  void in_flight(int round) {
    constexpr const char* kAlgorithms[] = {"ring", "direct", "two_shot", "dbt", "hierarchical"};
    std::vector<Reduction> reductions;
    std::atomic<int> called{0};
    for (int i = 0; i < 10; ++i) {
      reductions.push_back(start(*world_, static_cast<std::size_t>(1 + 7000 * (i % 3)), round + i, kAlgorithms[i % 5],
                                 true, kClasses[i % 4]));
      reductions.back().work->on_done([&called] { ++called; });
    }
    for (std::size_t i = reductions.size(); i-- > 0;) finish(reductions[i]);
    while (called.load() < 10) std::this_thread::yield();
  }

  void blocking(int round) {
    for (int i = 0; i < 5; ++i) {
      Reduction reduction = start(*world_, static_cast<std::size_t>(i * 1000), round, "auto", false);
      finish(reduction);
    }
    world_->barrier();
  }

  void messages(int round) {
    const std::uint32_t right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
    std::vector<std::byte> out(300'000, std::byte(rank_)), in(out.size());
    CallOptions async;
    async.async = true;
    const auto tag = static_cast<std::uint64_t>(round);
    const auto received = world_->receive(in.data(), in.size(), static_cast<int>(left), tag, async);
    const auto sent = world_->send(out.data(), out.size(), right, tag, async);
    Reduction between = start(*world_, 100, round, "auto", false);
    finish(between);
    received->wait();
    sent->wait();
    require(in[0] == std::byte(left) && in.back() == std::byte(left), "a message");
  }

  void two_groups(int round) {
    const std::unique_ptr<Communicator> other = join("other" + std::to_string(round));
    std::thread beside([&] {
      for (int i = 0; i < 10; ++i) {
        Reduction reduction = start(*other, 2000, i, "ring", i % 2 == 0);
        finish(reduction);
      }
    });
    for (int i = 0; i < 10; ++i) {
      Reduction reduction = start(*world_, 50, i, "auto", i % 3 == 0);
      finish(reduction);
    }
    beside.join();
  }

  void split_up(int round) {
    const std::shared_ptr<Communicator> half = world_->split(rank_ % 2, -static_cast<int>(rank_), {.timeout = {}});
    require(half->size() == (size_ + 1 - rank_ % 2) / 2, "the size of a half");
    Reduction reduction = start(*half, 3000, round, "auto", true);
    const auto nobody = half->split(std::nullopt, 0, {.timeout = {}});
    require(nobody == nullptr, "a group of nobody");
    finish(reduction);
  }

  void in_a_failing_group(int round) {
    const std::unique_ptr<Communicator> group = join("failing" + std::to_string(round));
    world_->barrier();  // all have joined; before that, its end would fail their joining
    std::vector<Reduction> pending;
    try {
      for (int i = 0; i < 4; ++i) {
        if (rank_ != size_ - 1) pending.push_back(start(*group, 10'000, i, "auto", true));
      }
      if (rank_ == size_ - 1) group->abort("enough");
      for (Reduction& reduction : pending) reduction.work->wait();
      group->barrier();
      require(false, "an aborted group went on");
    } catch (const Error& error) {
      require(error.kind() == Error::Kind::aborted, std::string("another error: ") + error.what());
    }
    for (Reduction& reduction : pending) {
      try {
        if (reduction.work) reduction.work->wait();
      } catch (const Error& error) {
        require(error.kind() == Error::Kind::aborted, std::string("another error: ") + error.what());
      }
    }
    if (rank_ == size_ - 1) return;
    const std::vector<std::uint32_t> last{size_ - 1};
    const std::shared_ptr<Communicator> survivors = group->shrink(last, {.timeout = {}});
    require(survivors->size() == size_ - 1, "the number of survivors");
    Reduction reduction = start(*survivors, 3000, round, "auto", false);
    finish(reduction);
  }

  std::size_t at_random(std::chrono::seconds seconds) {
    const std::shared_ptr<Communicator> again = world_->split(0, 0, {.timeout = {}});
    const std::shared_ptr<Communicator> half = world_->split(rank_ % 2, 0, {.timeout = {}});
    std::atomic<bool> over{false};
    std::thread reader([&] {
      for (; !over.load(); std::this_thread::sleep_for(std::chrono::milliseconds(5))) read_records();
    });
    const auto end = std::chrono::steady_clock::now() + seconds;
    std::size_t beside_calls = 0;
    std::thread beside([&] { beside_calls = call_until(end, {again.get(), half.get()}); });
    const std::size_t calls = call_until(end, {world_.get()});
    beside.join();
    over = true;
    reader.join();
    return calls + beside_calls;
  }

  /// The first group has all ranks; its rank 0 decides when to stop, so they stop together.
  static std::size_t call_until(std::chrono::steady_clock::time_point end, const std::vector<Communicator*>& groups) {
    std::vector<RandomCalls> calls;
    for (Communicator* group : groups) calls.emplace_back(*group, groups.size() + calls.size());
    std::mt19937_64 order(groups.size());
    std::size_t done = 0;
    for (bool enough = false; !enough;) {
      for (int i = 0; i < 20; ++i, ++done) calls[order() % calls.size()].call();
      enough = std::chrono::steady_clock::now() > end;
      auto* word = reinterpret_cast<std::byte*>(&enough);
      const std::byte* said = groups[0]->rank() == 0 ? word : nullptr;
      groups[0]->run({.collective = Collective::broadcast, .blocks = {Block{said, word, 1}}});
    }
    return done;
  }

  /// What is read while progress writes it must be consistent.
  void read_records() {
    std::uint64_t next = 0;
    for (const Recorder::Record& record : world_->recorder()->records()) {
      require(record.number >= next && record.kind < Recorder::kKinds, "a record");
      require(!record.program_name.empty() || record.kind >= Recorder::kBarrier, "the Program of a record");
      require(record.finished == 0 || record.finished >= record.created, "the times of a record");
      next = record.number + 1;
    }
    require(!syntony::pickle_of({world_->recorder()}).empty() && !syntony::counters_text().empty(), "a dump");
  }

  Meeting& meeting_;
  std::shared_ptr<ProgressEngine> engine_;
  const std::uint32_t rank_, size_;
  const Hosts hosts_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::uint32_t> hosts{{"shm", 1}, {"tcp", 1'000'000}, {"both", 2}};
  if (argc != 6 || !hosts.contains(argv[3])) {
    std::fprintf(stderr, "usage: stress RANKS own|shared shm|tcp|both ROUNDS SECONDS\n");
    return 2;
  }
  const auto size = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const bool shared = std::string(argv[2]) == "shared";
  const Hosts machines{hosts.at(argv[3])};
  const int rounds = std::atoi(argv[4]);
  const std::chrono::seconds seconds(std::atoi(argv[5]));
  Meeting meeting(size);
  const auto common = shared ? std::make_shared<ProgressEngine>() : nullptr;
  std::vector<std::thread> threads;
  std::atomic<std::size_t> calls{0};
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank one(meeting, shared ? common : std::make_shared<ProgressEngine>(), rank, size, machines);
      calls += one.run(rounds, seconds);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("ok: %zu random calls\n", calls.load());
  return 0;
}

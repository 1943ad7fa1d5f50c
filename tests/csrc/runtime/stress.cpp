// For the sanitizers: ranks as threads of one process, each with its own Engine or all sharing one, that do everything
// the runtime can do beside each other. Prints "ok" and returns 0, or says what was wrong.
//
//      stress RANKS own|shared shm|tcp ROUNDS       tcp: every rank believes to be on a host of its own
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/runtime/communicator.hpp"
#include "core/runtime/engine.hpp"

namespace {

using syntony::Block;
using syntony::CallOptions;
using syntony::Collective;
using syntony::Communicator;
using syntony::DType;
using syntony::Engine;
using syntony::Error;
using syntony::ReduceOp;
using syntony::Work;

void require(bool truth, const std::string& what) {
  if (truth) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::_Exit(1);
}

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

class ThreadBootstrap final : public syntony::Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, std::string group, std::uint32_t rank, std::uint32_t size, bool apart)
      : meeting_(meeting), group_(std::move(group)), rank_(rank), size_(size), apart_(apart) {}
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override {
    return meeting_.gather(group_ + "/" + name, rank_, apart_ && name == "introduce" ? on_own_host(blob) : blob);
  }

 private:
  /// The introduction begins with the host's key, as length, ':', bytes: every rank gets another.
  [[nodiscard]] std::string on_own_host(const std::string& blob) const {
    const std::size_t colon = blob.find(':');
    const std::string key = blob.substr(colon + 1, std::stoul(blob)) + " " + std::to_string(rank_);
    return std::to_string(key.size()) + ":" + key + blob.substr(colon + 1 + std::stoul(blob));
  }

  Meeting& meeting_;
  std::string group_;
  std::uint32_t rank_, size_;
  bool apart_;
};

struct Reduction {
  std::vector<std::int64_t> data;
  std::int64_t expected;
  std::shared_ptr<Work> work;
};

class Rank {
 public:
  Rank(Meeting& meeting, std::shared_ptr<Engine> engine, std::uint32_t rank, std::uint32_t size, bool apart)
      : meeting_(meeting), engine_(std::move(engine)), rank_(rank), size_(size), apart_(apart), world_(join("world")) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      in_flight(round);
      blocking(round);
      messages(round);
      two_groups(round);
    }
    in_a_failing_group();
    world_->barrier();
    world_->shutdown();
  }

 private:
  std::unique_ptr<Communicator> join(const std::string& name) {
    ThreadBootstrap bootstrap(meeting_, name, rank_, size_, apart_);
    return std::make_unique<Communicator>(
        engine_, bootstrap, syntony::CommunicatorOptions{.timeout = std::chrono::seconds(60), .name = name});
  }

  Reduction start(Communicator& group, std::size_t count, std::int64_t value, const std::string& algorithm,
                  bool async) {
    Reduction reduction{std::vector<std::int64_t>(count, value + rank_), 0, nullptr};
    reduction.expected = size_ * value + size_ * (size_ - 1) / 2;
    auto* bytes = reinterpret_cast<std::byte*>(reduction.data.data());
    CallOptions options;
    options.algorithm = algorithm;
    options.async = async;
    reduction.work =
        group.run(Collective::all_reduce, DType::int64, ReduceOp::sum, 0, {Block{bytes, bytes, count}}, options);
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
      reductions.push_back(
          start(*world_, static_cast<std::size_t>(1 + 7000 * (i % 3)), round + i, kAlgorithms[i % 5], true));
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

  void in_a_failing_group() {
    const std::unique_ptr<Communicator> group = join("failing");
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
  }

  Meeting& meeting_;
  std::shared_ptr<Engine> engine_;
  const std::uint32_t rank_, size_;
  const bool apart_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: stress RANKS own|shared shm|tcp ROUNDS\n");
    return 2;
  }
  const auto size = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const bool shared = std::string(argv[2]) == "shared";
  const bool apart = std::string(argv[3]) == "tcp";
  const int rounds = std::atoi(argv[4]);
  Meeting meeting(size);
  const auto common = shared ? std::make_shared<Engine>() : nullptr;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back(
        [&, rank] { Rank(meeting, shared ? common : std::make_shared<Engine>(), rank, size, apart).run(rounds); });
  }
  for (std::thread& thread : threads) thread.join();
  std::puts("ok");
  return 0;
}

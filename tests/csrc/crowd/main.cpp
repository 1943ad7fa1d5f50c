// Groups of more ranks than a machine can run processes: each rank believes it is on a host of its own, and is a thread
// while its group forms; ranks share a few processes, so that none runs out of descriptors. Everything else is real:
// TCP over loopback, the unmodified runtime.
//
//      crowd RANKS PROCESSES
//
//     shared memory: barrier, blobs      process 0: ranks 0, 1, 2, ..     a progress engine each, as in reality
//                                        process 1: ranks k, k+1, ..      likewise
//                                        process P: the last rank, alone: it is killed
//
// They form a group, sum a number, and start another sum; then the last rank is killed. Prints how long each step took
// at the slowest rank, and the memory of a rank. Returns 1 if a result or message is wrong, or a rank names no culprit.
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/group/communicator.hpp"
#include "core/process/host.hpp"
#include "core/program/algorithms/algorithms.hpp"
#include "core/progress/progress_engine.hpp"
#include "introduction.hpp"
#include "require.hpp"

namespace {

using syntony::Block;
using syntony::Call;
using syntony::Collective;
using syntony::Communicator;
using syntony::Error;
using syntony::ProgressEngine;
using syntony::Work;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What the processes share; created before they are.
class Shared {
 public:
  static constexpr std::size_t kRounds = 16;

  static Shared* make(std::uint32_t ranks, std::uint32_t processes) {
    const std::size_t bytes = sizeof(Shared) + ranks * kRounds * sizeof(Place) + kRounds * ranks * kRoom;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, "no shared memory");
    return new (memory) Shared(ranks, processes, static_cast<std::byte*>(memory), bytes);
  }

  void bring(std::size_t round, std::uint32_t rank, const std::string& blob) {
    const std::uint64_t place = filled_.fetch_add(blob.size());
    require(round < kRounds && place + blob.size() <= bytes_, "more is said than there is room for");
    std::memcpy(base_ + place, blob.data(), blob.size());
    places_[round * ranks_ + rank] = {place, blob.size()};
  }
  [[nodiscard]] std::string said(std::size_t round, std::uint32_t rank) const {
    const Place& place = places_[round * ranks_ + rank];
    return {reinterpret_cast<const char*>(base_) + place.begin, place.size};
  }
  void meet() { pthread_barrier_wait(&ranks_meet_); }
  void processes_meet() { pthread_barrier_wait(&processes_meet_); }
  void survivors_meet() { pthread_barrier_wait(&survivors_meet_); }

  std::atomic<std::int64_t> killed{0};
  std::atomic<std::int64_t> last_heard{0};  // of the survivors

  template <typename Number>
  static void raise(std::atomic<Number>& most, Number value) {
    Number old = most.load();
    while (old < value && !most.compare_exchange_weak(old, value)) {
    }
  }

 private:
  static constexpr std::size_t kRoom = 1024;
  struct Place {
    std::uint64_t begin, size;
  };

  Shared(std::uint32_t ranks, std::uint32_t processes, std::byte* base, std::size_t bytes)
      : ranks_(ranks), base_(base), bytes_(bytes), places_(reinterpret_cast<Place*>(base + sizeof(Shared))) {
    filled_ = sizeof(Shared) + ranks * kRounds * sizeof(Place);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&ranks_meet_, &shared, ranks);
    pthread_barrier_init(&processes_meet_, &shared, processes);
    pthread_barrier_init(&survivors_meet_, &shared, processes - 1);
  }

  std::uint32_t ranks_;
  std::byte* base_;
  std::size_t bytes_;
  Place* places_;
  std::atomic<std::uint64_t> filled_{0};
  pthread_barrier_t ranks_meet_{}, processes_meet_{}, survivors_meet_{};
};

class CrowdBootstrap final : public syntony::Bootstrap {
 public:
  CrowdBootstrap(Shared& shared, std::uint32_t rank, std::uint32_t size) : shared_(shared), rank_(rank), size_(size) {}
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override {
    shared_.bring(round_, rank_, name == "introduce" ? on_host(std::to_string(rank_), blob) : blob);
    shared_.meet();
    std::vector<std::string> all;
    all.reserve(size_);
    for (std::uint32_t rank = 0; rank < size_; ++rank) all.push_back(shared_.said(round_, rank));
    ++round_;
    return all;
  }

 private:
  Shared& shared_;
  std::uint32_t rank_, size_;
  std::size_t round_ = 0;
};

struct One {
  std::unique_ptr<Communicator> group;
  std::int64_t data = 0;
  std::shared_ptr<Work> work;
};

constexpr const char* kSum = "the crowd's";

/// What `auto` chooses for few bytes. Built once per process, whereas each rank of a real group builds its own.
std::shared_ptr<const syntony::Program> program_of(std::uint32_t ranks) {
  return std::make_shared<const syntony::Program>(
      syntony::build("recursive_doubling", Collective::all_reduce, ranks, 0, {}, {}));
}

Call sum(std::int64_t& data) {
  Call call;
  call.collective = Collective::all_reduce;
  call.dtype = syntony::DType::int64;
  auto* place = reinterpret_cast<std::byte*>(&data);
  call.blocks = {Block{.input = place, .output = place, .elements = 1}};
  call.options.async = true;
  call.options.algorithm = kSum;
  return call;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

double seconds(std::int64_t microseconds) { return static_cast<double>(microseconds) / 1e6; }

/// The ranks [first, last) of one process.
void run(Shared& shared, std::uint32_t first, std::uint32_t last, std::uint32_t size) {
  const bool tells = first == 0;
  const std::uint32_t doomed = size - 1;
  std::vector<One> ranks(last - first);
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  shared.processes_meet();
  const std::int64_t begin = now();
  std::vector<std::thread> threads;
  for (std::uint32_t rank = first; rank < last; ++rank) {
    threads.emplace_back([&, rank] {
      CrowdBootstrap bootstrap(shared, rank, size);
      const auto engine = std::make_shared<ProgressEngine>();
      engine->crowd();
      ranks[rank - first].group = std::make_unique<Communicator>(engine, bootstrap);
    });
  }
  for (std::thread& thread : threads) thread.join();
  shared.processes_meet();
  if (tells) std::printf("formed in %.3f s\n", seconds(now() - begin));
  std::fflush(stdout);
  const auto used = [&] { return (mallinfo2().uordblks + mallinfo2().hblkhd - before) / ranks.size(); };
  const std::size_t formed = used();
  if (tells) std::printf("a rank holds %zu bytes (%zu per peer)\n", formed, formed / size);
  std::fflush(stdout);
  const std::shared_ptr<const syntony::Program> program = program_of(size);
  for (One& one : ranks) one.group->add_program(kSum, program);
  shared.processes_meet();
  const std::int64_t called = now();
  for (One& one : ranks) {
    one.data = one.group->rank();
    one.work = one.group->run(sum(one.data));
  }
  for (One& one : ranks) one.work->wait();
  for (One& one : ranks) require(one.data == std::int64_t{size} * (size - 1) / 2, "a sum");
  shared.processes_meet();
  if (tells) {
    std::printf("a first sum in %.3f s\n", seconds(now() - called));
    std::printf("a rank holds %zu bytes, %zu descriptors\n", used(), open_descriptors() / ranks.size());
    std::fflush(stdout);
  }
  shared.processes_meet();
  if (first == doomed) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others wait for it
    shared.killed = now();
    std::raise(SIGKILL);
  }
  for (One& one : ranks) {
    try {
      one.work = one.group->run(sum(one.data));
    } catch (const Error&) {  // it has learned of it already, and says it again
    }
  }
  for (One& one : ranks) {
    try {
      if (one.group->error()) std::rethrow_exception(one.group->error());
      one.work->wait();
      require(false, "a sum without the rank that died");
    } catch (const Error& error) {
      require(error.kind() == Error::Kind::dead && error.ranks() == std::vector<int>{static_cast<int>(doomed)},
              std::string("a survivor says: ") + error.what());
    }
  }
  Shared::raise(shared.last_heard, now());
  shared.survivors_meet();
  std::fflush(stdout);
  std::_Exit(0);  // goodbyes are tested elsewhere
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: crowd RANKS PROCESSES\n");
    return 2;
  }
  const auto size = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const auto processes = static_cast<std::uint32_t>(std::atoi(argv[2]));
  // Tens of thousands of idle connections that one machine probes at about the same time are more packets than its
  // queue holds, and a probe that is dropped often enough counts as a death.
  ::setenv("SYNTONY_TCP_KEEPALIVE", "600", 0);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  Shared* shared = Shared::make(size, processes + 1);
  std::vector<pid_t> children;
  for (std::uint32_t process = 0; process <= processes; ++process) {
    const std::uint32_t first = process * (size - 1) / processes;
    const std::uint32_t last = process == processes ? size : (process + 1) * (size - 1) / processes;
    const pid_t child = fork();
    if (child == 0) run(*shared, process == processes ? size - 1 : first, last, size);
    children.push_back(child);
  }
  bool fine = true;
  for (std::uint32_t process = 0; process <= processes; ++process) {
    int status = 0;
    waitpid(children[process], &status, 0);
    fine &= process == processes ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!fine) return 1;
  std::printf("all survivors have named the dead rank after %.3f s\n", seconds(shared->last_heard - shared->killed));
  return 0;
}

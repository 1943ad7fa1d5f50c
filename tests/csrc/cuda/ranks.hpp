// A group of ranks on GPUs of threads (host_machine.hpp) that launch one Program after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/lowering.hpp"
#include "host_machine.hpp"
#include "reference.hpp"

namespace syntony::cuda {

struct FreeBytes {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeBytes>;

/// Zeroed, aligned to 128 bytes.
inline Memory new_memory(std::size_t bytes) {
  const std::size_t whole = (bytes + 127) / 128 * 128 + 128;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(128, whole));
  std::memset(memory, 0, whole);
  return Memory(memory);
}

/// One launch of all ranks, with memory of its own.
struct Job {
  std::vector<KernelForm> forms;                   // by rank
  std::vector<std::vector<Memory>> input, output;  // by rank and block
  std::vector<Memory> scratch;                     // by rank
  std::vector<std::vector<std::byte*>> in, out;    // where in those a buffer begins
};

class Ranks {
 public:
  Ranks(const ArenaShape& shape, std::uint32_t threads) : shape_(shape), threads_(threads) {
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      memory_.push_back(new_memory(arena_bytes(shape)));
      arenas_.push_back(memory_.back().get());
    }
    troubles_.resize(shape.ranks);
  }

  /// Sets counters as if `messages` messages had passed through every FIFO.
  void pretend_messages(std::uint64_t messages) {
    for (std::byte* arena : arenas_) {
      auto* const fifos = reinterpret_cast<FifoRecord*>(arena + fifos_offset());
      for (std::uint32_t i = 0; i < kProtocols * shape_.ranks * shape_.channels; ++i) {
        fifos[i] = {messages, messages, messages, messages};
      }
    }
  }

  /// Every rank launches all jobs, each once its own previous one has ended. `absent` launches nothing.
  void run(const std::vector<Job>& jobs, std::uint64_t timeout = 0, std::uint32_t absent = kNone) {
    std::vector<std::thread> ranks;
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
      if (rank == absent) continue;
      ranks.emplace_back([&, rank] {
        std::uint32_t number = 0;
        for (const Job& job : jobs) launch(job, rank, ++number, timeout);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  void abort() { std::atomic_ref(abort_).store(1, std::memory_order_relaxed); }
  [[nodiscard]] const Trouble& trouble(std::uint32_t rank) const { return troubles_[rank]; }
  [[nodiscard]] const std::byte* arena(std::uint32_t rank) const { return arenas_[rank]; }

 private:
  void launch(const Job& job, std::uint32_t rank, std::uint32_t number, std::uint64_t timeout) {
    const KernelForm& form = job.forms[rank];
    auto launch = std::make_unique<Launch>();
    launch->tables = form.tables();
    launch->shape = shape_;
    launch->rank = rank;
    launch->number = number;
    launch->arenas = arenas_.data();
    launch->abort = &abort_;
    launch->trouble = &troubles_[rank];
    launch->timeout = timeout;
    for (std::size_t i = 0; i < form.bases.size(); ++i) {
      const Base& base = form.bases[i];
      launch->bases[i] = base.space == Space::input    ? job.in[base.rank][base.block]
                         : base.space == Space::output ? job.out[base.rank][base.block]
                                                       : job.scratch[base.rank].get();
    }
    std::vector<std::unique_ptr<BlockState>> states;
    std::vector<std::unique_ptr<HostBulk>> engines;
    std::vector<std::unique_ptr<std::barrier<>>> barriers;
    std::vector<std::thread> threads;
    for (std::uint32_t block = 0; block < form.blocks; ++block) {
      states.push_back(std::make_unique<BlockState>());
      engines.push_back(form.bulk ? std::make_unique<HostBulk>() : nullptr);
      barriers.push_back(std::make_unique<std::barrier<>>(threads_));
    }
    for (std::uint32_t block = 0; block < form.blocks; ++block) {
      for (std::uint32_t thread = 0; thread < threads_; ++thread) {
        threads.emplace_back([&, block, thread] {
          const HostMachine machine(thread, threads_, *barriers[block], engines[block].get());
          Interpreter<HostMachine>(machine, *launch, block, *states[block]).run();
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  ArenaShape shape_;
  std::uint32_t threads_;
  std::vector<Memory> memory_;
  std::vector<std::byte*> arenas_;
  std::vector<Trouble> troubles_;
  std::uint32_t abort_ = 0;
};

}  // namespace syntony::cuda

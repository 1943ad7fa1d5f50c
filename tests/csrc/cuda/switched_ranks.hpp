// Ranks whose memories are behind one multicast address, on GPUs of threads: the switch is a loop over the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/device/formats.hpp"
#include "cuda/device/nvls.hpp"
#include "host_machine.hpp"
#include "ranks.hpp"

namespace syntony::cuda {

/// What an operation of the switch computes, in the same way as our own kernels.
struct SwitchArithmetic {
  DType dtype;
  ReduceOp op;
};
[[nodiscard]] inline SwitchArithmetic arithmetic_of(SwitchKind kind) {
  for (std::size_t dtype = 0; dtype < kDTypes.size(); ++dtype) {
    for (std::size_t op = 0; op < kReduceOps.size(); ++op) {
      const SwitchArithmetic found{static_cast<DType>(dtype), static_cast<ReduceOp>(op)};
      const bool wide = found.op < ReduceOp::band || size_of(found.dtype) == 8;  // bits: as instructions take them
      if (wide && switch_kind(found.dtype, found.op) == kind) return found;
    }
  }
  return {DType::uint8, ReduceOp::sum};
}

class HostSwitch {
 public:
  explicit HostSwitch(const std::vector<std::byte*>& memories) : memories_(memories) {}

  [[nodiscard]] Vector reduce(SwitchKind kind, std::uint64_t offset) const {
    const SwitchArithmetic how = arithmetic_of(kind);
    Vector sum;
    visit_format(how.dtype, [&](auto format) {
      using Format = decltype(format);
      using Storage = typename Format::Storage;
      for (std::size_t at = 0; at < sizeof sum; at += sizeof(Storage)) {
        auto wide = Format::widen(load_element<Storage>(memories_[0] + offset + at));
        for (std::size_t rank = 1; rank < memories_.size(); ++rank) {
          wide = Format::apply(how.op, wide, Format::widen(load_element<Storage>(memories_[rank] + offset + at)));
        }
        store_element(reinterpret_cast<std::byte*>(&sum) + at, Format::narrow(wide));
      }
    });
    return sum;
  }
  void store(std::uint64_t offset, const Vector& vector) const {
    for (std::byte* memory : memories_) HostMachine::store(memory + offset, vector);
  }
  void tell(std::uint64_t offset, std::uint64_t value) const {
    for (std::byte* memory : memories_) {
      HostMachine::release(reinterpret_cast<std::uint64_t*>(memory + offset), value);
    }
  }
  static void fence() {}

 private:
  const std::vector<std::byte*>& memories_;
};

/// Memory and troubles of a group.
class SwitchedRanks {
 public:
  SwitchedRanks(const NvlsShape& shape, std::uint32_t threads) : shape_(shape), threads_(threads) {
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      owned_.push_back(new_memory(nvls_bytes(shape)));
      memories_.push_back(owned_.back().get());
    }
    troubles_.resize(shape.ranks);
  }

  /// `jobs[..][rank]`: every rank launches all of its jobs, one after another. `absent` launches nothing.
  void run(const std::vector<std::vector<NvlsLaunch>>& jobs, std::uint64_t timeout = 0, std::uint32_t absent = kNone) {
    std::vector<std::thread> ranks;
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
      if (rank == absent) continue;
      ranks.emplace_back([&, rank] {
        for (const auto& job : jobs) launch(job[rank], timeout);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  [[nodiscard]] const Trouble& trouble(std::uint32_t rank) const { return troubles_[rank]; }

 private:
  void launch(NvlsLaunch launch, std::uint64_t timeout) {
    launch.own = memories_[launch.rank];
    launch.abort = &abort_;
    launch.trouble = &troubles_[launch.rank];
    launch.timeout = timeout;
    const HostSwitch all(memories_);
    std::vector<std::unique_ptr<NvlsState>> states;
    std::vector<std::unique_ptr<std::barrier<>>> barriers;
    std::vector<std::thread> threads;
    for (std::uint32_t block = 0; block < shape_.blocks; ++block) {
      states.push_back(std::make_unique<NvlsState>());
      barriers.push_back(std::make_unique<std::barrier<>>(threads_));
    }
    for (std::uint32_t block = 0; block < shape_.blocks; ++block) {
      for (std::uint32_t thread = 0; thread < threads_; ++thread) {
        threads.emplace_back([&, block, thread] {
          const HostMachine machine(thread, threads_, *barriers[block]);
          Nvls<HostMachine, HostSwitch>(machine, all, launch, block, *states[block]).run();
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  NvlsShape shape_;
  std::uint32_t threads_;
  std::vector<Memory> owned_;
  std::vector<std::byte*> memories_;
  std::vector<Trouble> troubles_;
  std::uint32_t abort_ = 0;
};

}  // namespace syntony::cuda

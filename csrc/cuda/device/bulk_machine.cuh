// The interpreter's Machine on a GPU whose processors may have a copy engine (device/bulk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/bulk.hpp"
#include "cuda/device/cuda_machine.cuh"

namespace syntony::cuda {

/// The copy engine state of a block, in shared memory; used by the leader.
struct BulkRing {
  std::uint64_t barriers[BulkStages::kStages];
  std::uint32_t phases;  // one bit each: which phase of its barrier to wait for next
};

class BulkMachine : public CudaMachine {
 public:
  /// Without a ring, the copy engine is not used.
  __device__ BulkMachine(const std::uint32_t* abort, BulkRing* ring, std::byte* stages)
      : CudaMachine(abort), ring_(ring), stages_(stages) {}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ bool bulk() const { return ring_ != nullptr; }
  /// Called by the leader before all others.
  __device__ void bulk_prepare() const {
    for (std::uint32_t stage = 0; stage < BulkStages::kStages; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(stage)) : "memory");
    }
    ring_->phases = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ static void bulk_begin() { asm volatile("fence.proxy.async;" ::: "memory"); }
  __device__ void bulk_load(std::uint32_t stage, const std::byte* from, std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(stage)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared(stages_ + stage * BulkStages::kBytes)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier(stage))
                 : "memory");
  }
  __device__ void bulk_loaded(std::uint32_t stage) const {
    const std::uint32_t phase = ring_->phases >> stage & 1;
    for (std::uint32_t done = 0; done == 0;) {
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier(stage)), "r"(phase)
          : "memory");
    }
    ring_->phases ^= 1U << stage;
  }
  __device__ void bulk_store(std::byte* to, std::uint32_t stage, std::uint32_t bytes) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(shared(stages_ + stage * BulkStages::kBytes)), "r"(bytes)
                 : "memory");
  }
  __device__ static void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
  __device__ static void bulk_read_but_one() { asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }
  __device__ static void bulk_end() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
#else
  // Older processors have no such engine, and LaunchPlan does not request it.
  __device__ static bool bulk() { return false; }
  __device__ static void bulk_prepare() {}
  __device__ static void bulk_begin() {}
  __device__ static void bulk_load(std::uint32_t, const std::byte*, std::uint32_t) {}
  __device__ static void bulk_loaded(std::uint32_t) {}
  __device__ static void bulk_store(std::byte*, std::uint32_t, std::uint32_t) {}
  __device__ static void bulk_commit() {}
  __device__ static void bulk_read_but_one() {}
  __device__ static void bulk_end() {}
#endif

 private:
  __device__ static std::uint32_t shared(const void* at) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  }
  __device__ std::uint32_t barrier(std::uint32_t stage) const { return shared(ring_->barriers + stage); }

  BulkRing* ring_;
  std::byte* stages_;
};

}  // namespace syntony::cuda

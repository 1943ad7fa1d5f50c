#include <cuda_runtime.h>

#include "cuda/cuda_objects.hpp"
#include "cuda/device/cuda_machine.cuh"
#include "cuda/switches/nvls.hpp"

namespace syntony::cuda {
namespace {

constexpr int kThreads = 512;  // of a block

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// The switch, behind the multicast address. Works on 16 bytes at a time; the number of instructions depends on the
/// kind.
class CudaSwitch {
 public:
  __device__ explicit CudaSwitch(std::byte* all) : all_(all) {}

  __device__ Vector reduce(SwitchKind kind, std::uint64_t offset) const {
    const std::byte* const at = all_ + offset;
    switch (kind) {
      case SwitchKind::add_f32: {
        float4 v;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
        return bits_as<Vector>(v);
      }
      case SwitchKind::add_f16: {
        uint4 v;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
        return bits_as<Vector>(v);
      }
      case SwitchKind::add_bf16: {
        uint4 v;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
        return bits_as<Vector>(v);
      }
      case SwitchKind::add_f64:
        return of_two(
            [](const std::byte* from) {
              double v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f64 %0, [%1];"
                           : "=d"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return bits_as<std::uint64_t>(v);
            },
            at);
      case SwitchKind::add_u32:
        return of_four(
            [](const std::byte* from) {
              std::uint32_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];"
                           : "=r"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::add_u64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::min_s32:
        return of_four(
            [](const std::byte* from) {
              std::uint32_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.min.s32 %0, [%1];"
                           : "=r"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::min_u32:
        return of_four(
            [](const std::byte* from) {
              std::uint32_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.min.u32 %0, [%1];"
                           : "=r"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::min_s64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.min.s64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::min_u64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.min.u64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::max_s32:
        return of_four(
            [](const std::byte* from) {
              std::uint32_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.max.s32 %0, [%1];"
                           : "=r"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::max_u32:
        return of_four(
            [](const std::byte* from) {
              std::uint32_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.max.u32 %0, [%1];"
                           : "=r"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::max_s64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.max.s64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::max_u64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.max.u64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::and_b64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.and.b64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::or_b64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.or.b64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::xor_b64:
        return of_two(
            [](const std::byte* from) {
              std::uint64_t v;
              asm volatile("multimem.ld_reduce.relaxed.sys.global.xor.b64 %0, [%1];"
                           : "=l"(v)
                           : "l"(__cvta_generic_to_global(from))
                           : "memory");
              return v;
            },
            at);
      case SwitchKind::none:
        break;
    }
    __trap();
  }

  __device__ void store(std::uint64_t offset, const Vector& vector) const {
    const auto v = bits_as<float4>(vector);
    asm volatile(
        "multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(all_ + offset)),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
        : "memory");
  }
  __device__ void tell(std::uint64_t offset, std::uint64_t value) const {
    asm volatile("multimem.st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(all_ + offset)),
                 "l"(value)
                 : "memory");
  }
  __device__ static void fence() { asm volatile("fence.proxy.alias;" ::: "memory"); }

 private:
  template <class Load>
  __device__ static Vector of_two(Load load, const std::byte* at) {
    return {{load(at), load(at + 8)}};
  }
  template <class Load>
  __device__ static Vector of_four(Load load, const std::byte* at) {
    return bits_as<Vector>(uint4{load(at), load(at + 4), load(at + 8), load(at + 12)});
  }

  std::byte* all_;
};

__global__ void __launch_bounds__(kThreads, 1)
    switched_kernel(const __grid_constant__ NvlsLaunch launch, std::byte* all) {
  __shared__ NvlsState shared;
  const CudaMachine machine(launch.abort);
  const CudaSwitch everybody(all);
  Nvls<CudaMachine, CudaSwitch>(machine, everybody, launch, blockIdx.x, shared).run();
}

#else

/// Never launched: older GPUs cannot join a multicast object.
__global__ void switched_kernel(const __grid_constant__ NvlsLaunch, std::byte*) { __trap(); }

#endif

}  // namespace

void run_switched(const NvlsLaunch& launch, std::byte* all, cudaStream_t stream) {
  switched_kernel<<<launch.shape.blocks, kThreads, 0, stream>>>(launch, all);
  check(cudaGetLastError(), "launching a collective through switches");
}

}  // namespace syntony::cuda

// Kernels for NEON, which every 64-bit Arm processor has: the same 16-byte vectors as the portable ones, with hardware
// conversions of float16.
#ifdef __aarch64__

#include <arm_neon.h>

#include "core/kernels/kernel_loops.hpp"

namespace syntony {
namespace {

struct Neon {
  static constexpr std::size_t kBytes = 16;
  using Half = kernels::Vector<std::uint16_t, 4>;
  using Single = kernels::Vector<float, 4>;

  [[gnu::always_inline]] static Single widen_half(Half v) {
    return kernels::bits_as<Single>(vcvt_f32_f16(kernels::bits_as<float16x4_t>(v)));
  }
  [[gnu::always_inline]] static Half narrow_half(Single v) {
    return kernels::bits_as<Half>(vcvt_f16_f32(kernels::bits_as<float32x4_t>(v)));
  }
};

}  // namespace

constinit const KernelTable kNeonKernels = kernels::make_kernels<Neon>("neon");

}  // namespace syntony

#endif  // __aarch64__

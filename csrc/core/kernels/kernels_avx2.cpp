// Kernels for AVX2 + F16C. Compile with -mavx2 -mf16c.
#ifdef __x86_64__

#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mf16c"
#endif

#include <immintrin.h>

#include "core/kernels/kernel_loops.hpp"

namespace syntony {
namespace {

struct Avx2 {
  static constexpr std::size_t kBytes = 32;
  using Half = kernels::Vector<std::uint16_t, 8>;
  using Single = kernels::Vector<float, 8>;

  [[gnu::always_inline]] static Single widen_half(Half v) { return Single(_mm256_cvtph_ps(__m128i(v))); }
  [[gnu::always_inline]] static Half narrow_half(Single v) {
    return Half(_mm256_cvtps_ph(__m256(v), _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, const std::byte* from) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void finish() { _mm_sfence(); }
};

}  // namespace

constinit const KernelTable kAvx2Kernels = kernels::make_kernels<Avx2>("avx2");

}  // namespace syntony

#endif  // __x86_64__

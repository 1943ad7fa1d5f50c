// Kernels for AVX-512. Compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl.
//
// AVX512_BF16 is not used, on purpose: its conversion flushes subnormals, so a rank that has it would disagree with one
// that does not.
#ifdef __x86_64__

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>

#include "core/kernels/kernel_loops.hpp"

namespace syntony {
namespace {

struct Avx512 {
  static constexpr std::size_t kBytes = 64;
  using Half = kernels::Vector<std::uint16_t, 16>;
  using Single = kernels::Vector<float, 16>;

  // A full mask is equivalent to no mask, without the undefined value inside GCC's intrinsic that GCC 12 warns about.
  static constexpr __mmask16 kAllLanes = 0xffff;

  [[gnu::always_inline]] static Single widen_half(Half v) {
    return Single(_mm512_maskz_cvtph_ps(kAllLanes, __m256i(v)));
  }
  [[gnu::always_inline]] static Half narrow_half(Single v) {
    return Half(_mm512_maskz_cvtps_ph(kAllLanes, __m512(v), _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, const std::byte* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_load_si512(from));
  }
  static void finish() { _mm_sfence(); }
};

}  // namespace

constinit const KernelTable kAvx512Kernels = kernels::make_kernels<Avx512>("avx512");

}  // namespace syntony

#endif  // __x86_64__

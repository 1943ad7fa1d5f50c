// A copy with non-temporal stores: what memory can do, for benchmarks to measure the runtime by.
//
// An ordinary store reads its cache line before it writes it; a non-temporal one does not, so a copy of n bytes moves
// 2n. The widest stores that the machine has are chosen when it runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nb = nanobind;

namespace syntony {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kLine = 64;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void stream_lines_avx512(std::byte* dst, const std::byte* src, std::size_t lines) {
  for (std::size_t at = 0; at < lines * kLine; at += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + at), _mm512_loadu_si512(src + at));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) void stream_lines_avx2(std::byte* dst, const std::byte* src, std::size_t lines) {
  for (std::size_t at = 0; at < lines * kLine; at += kLine / 2) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + at),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + at)));
  }
  _mm_sfence();
}

void stream_lines(std::byte* dst, const std::byte* src, std::size_t lines) {
  if (__builtin_cpu_supports("avx512f") != 0) return stream_lines_avx512(dst, src, lines);
  if (__builtin_cpu_supports("avx2") != 0) return stream_lines_avx2(dst, src, lines);
  std::memcpy(dst, src, lines * kLine);
}
#else
void stream_lines(std::byte* dst, const std::byte* src, std::size_t lines) { std::memcpy(dst, src, lines * kLine); }
#endif

void stream_copy(const Bytes& dst, const ConstBytes& src) {
  if (src.size() != dst.size() || dst.size() % kLine != 0 ||
      reinterpret_cast<std::uintptr_t>(dst.data()) % kLine != 0) {
    throw std::invalid_argument("stream_copy takes two buffers of the same whole number of 64-byte lines, dst aligned");
  }
  const nb::gil_scoped_release unlocked;
  stream_lines(reinterpret_cast<std::byte*>(dst.data()), reinterpret_cast<const std::byte*>(src.data()),
               dst.size() / kLine);
}

}  // namespace
}  // namespace syntony

void bind_stream_copy(nb::module_& m) {
  m.def(
      "stream_copy", &syntony::stream_copy, nb::arg("dst"), nb::arg("src"),
      "dst = src past the caches (AVX-512 or AVX2 where there are; else an ordinary copy), over uint8 views of equal\n"
      "size, whole 64-byte lines; `dst` begins at a line.");
}

// A copy with non-temporal stores: the memory's limit, against which benchmarks measure the runtime.
//
// An ordinary store reads its cache line before writing it; a non-temporal one does not, so a copy of n bytes moves 2n.
// The widest stores of the machine are chosen at run time.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/kernels/vector_copy.hpp"
#include "core/sizes.hpp"

namespace nb = nanobind;

namespace syntony {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void stream_copy(const Bytes& dst, const ConstBytes& src) {
  if (src.size() != dst.size() || dst.size() % kCacheLine != 0 ||
      reinterpret_cast<std::uintptr_t>(dst.data()) % kCacheLine != 0) {
    throw std::invalid_argument("stream_copy takes two buffers of the same whole number of 64-byte lines, dst aligned");
  }
  const nb::gil_scoped_release unlocked;
  streaming_copy(reinterpret_cast<std::byte*>(dst.data()), reinterpret_cast<const std::byte*>(src.data()), dst.size());
}

}  // namespace
}  // namespace syntony

void bind_stream_copy(nb::module_& m) {
  m.def(
      "stream_copy", &syntony::stream_copy, nb::arg("dst"), nb::arg("src"),
      "dst = src past the caches (AVX-512 or AVX2 where there are; else an ordinary copy), over uint8 views of equal\n"
      "size, whole 64-byte lines; `dst` begins at a line.");
}

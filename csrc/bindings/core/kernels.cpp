// Python's view of the kernels: element-wise arithmetic on contiguous byte buffers.
#include "core/kernels/kernels.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace syntony {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

DType parse_dtype(std::string_view name) {
  const auto at = std::ranges::find(kDTypes, name, &DTypeTraits::name);
  if (at == kDTypes.end()) throw std::invalid_argument("unknown dtype '" + std::string(name) + "'; see DTYPES");
  return static_cast<DType>(at - kDTypes.begin());
}

ReduceOp parse_op(std::string_view name) {
  const auto at = std::ranges::find(kReduceOps, name);
  if (at == kReduceOps.end()) throw std::invalid_argument("unknown op '" + std::string(name) + "'; see REDUCE_OPS");
  return static_cast<ReduceOp>(at - kReduceOps.begin());
}

std::size_t count_of(DType dtype, std::size_t bytes) {
  if (bytes % size_of(dtype) != 0) {
    throw std::invalid_argument(std::to_string(bytes) + " bytes are not a whole number of " +
                                std::string(name_of(dtype)) + " elements");
  }
  return bytes / size_of(dtype);
}

/// The kernels need a source that *is* the destination or does not overlap it, and equally many bytes in both.
const std::byte* checked_source(const Bytes& dst, const ConstBytes& src) {
  if (src.size() != dst.size()) {
    throw std::invalid_argument("a source has " + std::to_string(src.size()) + " bytes, the destination " +
                                std::to_string(dst.size()));
  }
  const auto to = reinterpret_cast<std::uintptr_t>(dst.data());
  const auto from = reinterpret_cast<std::uintptr_t>(src.data());
  if (from != to && from < to + dst.size() && to < from + src.size()) {
    throw std::invalid_argument("a source overlaps the destination without being it");
  }
  return reinterpret_cast<const std::byte*>(src.data());
}

void reduce_bytes(std::string_view dtype_name, std::string_view op_name, const Bytes& dst,
                  const std::vector<ConstBytes>& sources, bool past, bool paged, const std::optional<Bytes>& also) {
  const DType dtype = parse_dtype(dtype_name);
  const ReduceOp op = parse_op(op_name);
  const std::size_t count = count_of(dtype, dst.size());
  std::vector<const std::byte*> pointers;
  pointers.reserve(sources.size());
  auto* const to = reinterpret_cast<std::byte*>(dst.data());
  for (const ConstBytes& source : sources) pointers.push_back(checked_source(dst, source));
  if (past && std::ranges::find(pointers, to) != pointers.end()) {
    throw std::invalid_argument("a result past the caches is none of its sources");
  }
  if (also && (!past || also->size() != dst.size())) {
    throw std::invalid_argument("`also` gets a result that goes past the caches, as many bytes of it");
  }
  const nb::gil_scoped_release unlocked;
  if (also) {
    return reduce_past_beside(dtype, op, to, pointers, count, {.also = reinterpret_cast<std::byte*>(also->data())});
  }
  (past ? reduce_past : paged ? reduce_paged : reduce)(dtype, op, to, pointers, count);
}

void scale_bytes(std::string_view dtype_name, const Bytes& dst, const ConstBytes& src, double factor) {
  const DType dtype = parse_dtype(dtype_name);
  const std::byte* const from = checked_source(dst, src);
  const std::size_t count = count_of(dtype, dst.size());
  const nb::gil_scoped_release unlocked;
  scale(dtype, reinterpret_cast<std::byte*>(dst.data()), from, count, factor);
}

void divide_bytes(std::string_view dtype_name, const Bytes& data, std::int64_t divisor) {
  const DType dtype = parse_dtype(dtype_name);
  const std::size_t count = count_of(dtype, data.size());
  const nb::gil_scoped_release unlocked;
  divide(dtype, reinterpret_cast<std::byte*>(data.data()), count, divisor);
}

template <class Names, class Name>
nb::tuple names_of(const Names& items, Name name) {
  nb::list names;
  for (const auto& item : items) names.append(nb::str(name(item).data(), name(item).size()));
  return nb::tuple(names);
}

}  // namespace
}  // namespace syntony

void bind_kernels(nb::module_& m) {
  using namespace syntony;
  m.attr("DTYPES") = names_of(kDTypes, [](const DTypeTraits& dtype) { return dtype.name; });
  m.attr("REDUCE_OPS") = names_of(kReduceOps, [](std::string_view op) { return op; });
  m.def(
      "itemsize", [](std::string_view dtype) { return size_of(parse_dtype(dtype)); }, nb::arg("dtype"),
      "Bytes of one element of `dtype`.");
  m.def(
      "supports",
      [](std::string_view dtype, std::string_view op) { return supports(parse_dtype(dtype), parse_op(op)); },
      nb::arg("dtype"), nb::arg("op"), "True when `op` has a meaning for elements of `dtype`.");
  m.def("reduce", &reduce_bytes, nb::arg("dtype"), nb::arg("op"), nb::arg("dst"), nb::arg("sources"),
        nb::arg("past") = false, nb::arg("paged") = false, nb::arg("also") = nb::none(),
        "dst = sources[0] op sources[1] op ..., from left to right, over contiguous uint8 views of equal size.\n"
        "`dst` may be one of the sources, but not if it is written `past` the caches. `paged`: sources are read from\n"
        "several pages at a time. `also` gets what goes past the caches, too, through them. Formats narrower than "
        "float32\n"
        "round once, at the end.");
  m.def("scale", &scale_bytes, nb::arg("dtype"), nb::arg("dst"), nb::arg("src"), nb::arg("factor"),
        "dst = src * factor; floating point and complex only. `dst` may be `src`.");
  m.def("divide", &divide_bytes, nb::arg("dtype"), nb::arg("data"), nb::arg("divisor"),
        "data = data / divisor in place (divisor >= 1); integers truncate toward zero.");
  m.def("kernel_isa", &kernel_isa, "The instruction set in use: \"avx512\", \"avx2\" or \"portable\".");
}

#include "bindings/core/memory.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/process/usable_cpus.hpp"
#include "core/shm/shareable_memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

/// The element type that a buffer's format (module struct's, and NumPy's Z for complex) stands for, if it is one of
/// ours.
std::optional<DType> dtype_of_format(std::string_view format) {
  static constexpr std::array<std::pair<std::string_view, DType>, 16> kFormats{{
      {"?", DType::boolean},
      {"b", DType::int8},
      {"B", DType::uint8},
      {"h", DType::int16},
      {"H", DType::uint16},
      {"i", DType::int32},
      {"I", DType::uint32},
      {"l", DType::int64},
      {"L", DType::uint64},
      {"q", DType::int64},
      {"Q", DType::uint64},
      {"e", DType::float16},
      {"f", DType::float32},
      {"d", DType::float64},
      {"Zf", DType::complex64},
      {"Zd", DType::complex128},
  }};
  const auto* const found = std::ranges::find(kFormats, format, &std::pair<std::string_view, DType>::first);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::optional<Memory> memory_of(nb::handle array) {
  Py_buffer view;
  if (PyObject_CheckBuffer(array.ptr()) == 0) return std::nullopt;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto release = [](Py_buffer* held) { PyBuffer_Release(held); };
  const std::unique_ptr<Py_buffer, decltype(release)> held(&view, release);
  const std::optional<DType> dtype = dtype_of_format(view.format == nullptr ? "B" : view.format);
  if (!dtype || size_of(*dtype) != static_cast<std::size_t>(view.itemsize)) return std::nullopt;
  return Memory{static_cast<std::byte*>(view.buf), static_cast<std::size_t>(view.len / view.itemsize), *dtype,
                view.readonly == 0};
}

namespace {

/// Address, elements, element type, writable; None for what is not contiguous or not one of our types.
nb::object contiguous(nb::handle array) {
  const std::optional<Memory> memory = memory_of(array);
  if (!memory) return nb::none();
  const std::string_view name = name_of(memory->dtype);
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(memory->data), memory->elements,
                        nb::str(name.data(), name.size()), memory->writable);
}

}  // namespace
}  // namespace syntony

void bind_memory(nb::module_& m) {
  using syntony::ShareableMemory;
  m.def(
      "usable_cpus", [](const std::string& root) { return syntony::usable_cpus(root); }, "root"_a = "/",
      "How many CPUs' worth of time this process may use: its affinity, bounded by the quotas of its control groups.");
  m.def("contiguous", &syntony::contiguous, "array"_a,
        nb::sig("def contiguous(array: object) -> tuple[int, int, str, bool] | None"),
        "(address, elements, dtype, writable) of what has the buffer protocol; None unless it is contiguous and its "
        "elements are ours.");
  m.def(
      "allocate",
      [](std::size_t bytes) {
        auto* const piece = new std::shared_ptr<ShareableMemory>(ShareableMemory::allocate(bytes));
        const nb::capsule owner(
            piece, [](void* held) noexcept { delete static_cast<std::shared_ptr<ShareableMemory>*>(held); });
        return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>((*piece)->data(), {bytes}, owner);
      },
      "bytes"_a, "Zeros in page-aligned memory that other processes of the host could map.");
  m.def(
      "place_of",
      [](std::uintptr_t address, std::size_t bytes) -> std::optional<std::pair<int, std::size_t>> {
        const auto place = ShareableMemory::find(reinterpret_cast<const std::byte*>(address), bytes);
        if (!place) return std::nullopt;
        return std::pair(place->descriptor, place->offset);
      },
      "address"_a, "bytes"_a, "Descriptor and offset of memory from `allocate`; None for other memory.");
}

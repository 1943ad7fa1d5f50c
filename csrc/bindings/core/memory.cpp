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

#include "bindings/core/tensor_memory.hpp"
#include "core/process/usable_cpus.hpp"
#include "core/shm/shareable_memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

/// Buffer formats (of module struct, plus NumPy's Z for complex) that correspond to our element types.
constexpr std::array<std::pair<std::string_view, DType>, 18> kFormats{{
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
    {"F", DType::complex64},
    {"D", DType::complex128},
    {"Zf", DType::complex64},
    {"Zd", DType::complex128},
}};

std::optional<DType> dtype_of_format(std::string_view format) {
  const auto* const found = std::ranges::find(kFormats, format, &std::pair<std::string_view, DType>::first);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

std::optional<DType> dtype_of_letter(char letter) {
  static constexpr auto kByLetter = [] {
    std::array<std::optional<DType>, 128> types{};
    for (const auto& [format, dtype] : kFormats) {
      if (format.size() == 1) types[static_cast<std::size_t>(format[0])] = dtype;
    }
    return types;
  }();
  const auto at = static_cast<unsigned char>(letter);
  return at < kByLetter.size() ? kByLetter[at] : std::nullopt;
}

/// NumPy arrays, read from their structs: through the buffer protocol each would first write down its format and shape,
/// which takes a tenth of a small call. Nothing for other objects, including subclasses.
std::optional<Memory> memory_of_numpy_array(PyObject* object) {
  // The first fields of PyArrayObject_fields and PyArray_Descr (numpy/ndarraytypes.h), common to NumPy 1 and 2.
  struct Array {
    PyObject head;
    std::byte* data;
    int dimensions;
    const Py_ssize_t* shape;
    const Py_ssize_t* strides;
    PyObject* base;
    PyObject* dtype;
    int flags;
  };
  struct Descriptor {
    PyObject head;
    PyTypeObject* scalar;
    char kind, letter, byte_order;
  };
  constexpr int kContiguous = 0x0001, kWritable = 0x0400;
  static PyObject* type = nullptr;  // kept forever once NumPy is loaded; guarded by the interpreter's lock
  if (type == nullptr) {
    const nb::object numpy = nb::steal(PyImport_GetModule(nb::str("numpy").ptr()));
    if (numpy.is_valid()) type = nb::getattr(numpy, "ndarray").release().ptr();
  }
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != type) return std::nullopt;
  const auto& array = *reinterpret_cast<const Array*>(object);
  const auto& descriptor = *reinterpret_cast<const Descriptor*>(array.dtype);
  const std::optional<DType> dtype = dtype_of_letter(descriptor.letter);
  const bool native = descriptor.byte_order == '=' || descriptor.byte_order == '|';
  if (!dtype || !native || (array.flags & kContiguous) == 0) return std::nullopt;
  std::size_t elements = 1;
  for (int axis = 0; axis < array.dimensions; ++axis) elements *= static_cast<std::size_t>(array.shape[axis]);
  return Memory{array.data, elements, *dtype, (array.flags & kWritable) != 0};
}

}  // namespace

std::optional<Memory> memory_of(nb::handle array) {
  if (const auto memory = memory_of_numpy_array(array.ptr())) return memory;
  if (const auto memory = memory_of_tensor(array.ptr())) return memory;
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

/// Address, elements, element type, writable; None if not contiguous or not one of our types.
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
        "(address, elements, dtype, writable) of a torch tensor or of what has the buffer protocol; None unless it is "
        "contiguous and its elements are ours.");
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

#include "bindings/core/tensor_memory.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace nb = nanobind;

namespace syntony {
namespace {

/// DLPack's table of C functions, which a type publishes as `__dlpack_c_exchange_api__` (since DLPack 1.3, torch 2.10).
struct ExchangeTable {
  std::uint32_t major, minor;
  const ExchangeTable* older;
  void (*allocate)();
  void (*exported)();
  void (*imported)();
  /// Fills in what the object keeps; 0, or -1 with a Python exception.
  int (*borrowed)(void* object, nb::dlpack::dltensor* tensor);
};

using Code = nb::dlpack::dtype_code;

struct DLPackType {
  Code code;
  std::uint8_t bits;
  DType dtype;
};

constexpr std::array<DLPackType, 21> kTypes{{
    {Code::Int, 8, DType::int8},
    {Code::Int, 16, DType::int16},
    {Code::Int, 32, DType::int32},
    {Code::Int, 64, DType::int64},
    {Code::UInt, 8, DType::uint8},
    {Code::UInt, 16, DType::uint16},
    {Code::UInt, 32, DType::uint32},
    {Code::UInt, 64, DType::uint64},
    {Code::Float, 16, DType::float16},
    {Code::Float, 32, DType::float32},
    {Code::Float, 64, DType::float64},
    {Code::Bfloat, 16, DType::bfloat16},
    {Code::Complex, 32, DType::complex32},
    {Code::Complex, 64, DType::complex64},
    {Code::Complex, 128, DType::complex128},
    {Code::Bool, 8, DType::boolean},
    {Code::Float8_E4M3FN, 8, DType::float8_e4m3fn},
    {Code::Float8_E4M3FNUZ, 8, DType::float8_e4m3fnuz},
    {Code::Float8_E5M2, 8, DType::float8_e5m2},
    {Code::Float8_E5M2FNUZ, 8, DType::float8_e5m2fnuz},
    {Code::Float8_E8M0FNU, 8, DType::float8_e8m0fnu},
}};

/// torch.Tensor and its table; both null without torch, or with one that is too old. Kept forever once torch is loaded;
/// guarded by the interpreter's lock.
struct TensorType {
  PyObject* type = nullptr;
  const ExchangeTable* table = nullptr;
};

const TensorType& tensor_type() {
  static TensorType found;
  if (found.type != nullptr) return found;
  const nb::object torch = nb::steal(PyImport_GetModule(nb::str("torch").ptr()));
  if (!torch.is_valid()) return found;
  const nb::object type = nb::getattr(torch, "Tensor", nb::none());  // none yet while torch is being imported
  if (type.is_none()) return found;
  found.type = nb::object(type).release().ptr();
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  constexpr const char* kName = "dlpack_exchange_api";
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) return found;
  const auto* const table = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  if (table->major == 1) found.table = table;
  return found;
}

bool contiguous(const nb::dlpack::dltensor& tensor) {
  std::int64_t expected = 1;
  for (std::int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

/// The answer of a method without arguments; true if there was none.
bool says(PyObject* object, PyObject* method) {
  const nb::object answer = nb::steal(PyObject_CallMethodNoArgs(object, method));
  if (answer.is_valid()) return answer.ptr() != Py_False;
  PyErr_Clear();
  return true;
}

}  // namespace

std::optional<Memory> memory_of_tensor(PyObject* object) {
  const TensorType& torch = tensor_type();
  if (torch.table == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(object)) != torch.type) return std::nullopt;
  nb::dlpack::dltensor tensor{};
  if (torch.table->borrowed == nullptr || torch.table->borrowed(object, &tensor) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto* const known = std::ranges::find_if(kTypes, [&](const DLPackType& type) {
    return type.code == Code{tensor.dtype.code} && type.bits == tensor.dtype.bits;
  });
  if (known == kTypes.end() || tensor.dtype.lanes != 1) return std::nullopt;
  if (tensor.device.device_type != nb::device::cpu::value || tensor.data == nullptr || !contiguous(tensor)) {
    return std::nullopt;
  }
  static PyObject* const kIsNeg = PyUnicode_InternFromString("is_neg");
  static PyObject* const kIsConj = PyUnicode_InternFromString("is_conj");
  if (says(object, kIsNeg) || (known->code == Code::Complex && says(object, kIsConj))) return std::nullopt;
  std::size_t elements = 1;
  for (std::int32_t axis = 0; axis < tensor.ndim; ++axis) elements *= static_cast<std::size_t>(tensor.shape[axis]);
  return Memory{static_cast<std::byte*>(tensor.data) + tensor.byte_offset, elements, known->dtype, true};
}

}  // namespace syntony

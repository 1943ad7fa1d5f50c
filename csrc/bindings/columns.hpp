// NumPy columns as passed to and from the bindings: one-dimensional, contiguous, in CPU memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syntony {

template <class T>
using Column = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> span_of(const Column<T>& column) {
  return {column.data(), column.size()};
}

/// The columns of a Python object, by attribute, so that a simulator's columns need not be listed here. Spans are valid
/// as long as this is. Throws std::invalid_argument for a column of another type or layout.
class ColumnsOf {
 public:
  explicit ColumnsOf(nanobind::handle object) : object_(object) {}

  template <class T>
  void read(std::span<const T>& into, const char* name) {
    const nanobind::object column = object_.attr(name);
    Column<T> found;
    if (!nanobind::try_cast(column, found, false))
      throw std::invalid_argument(std::string("column of another type: ") + name);
    kept_.push_back(column);
    into = span_of(found);
  }

 private:
  nanobind::handle object_;
  std::vector<nanobind::object> kept_;
};

/// A NumPy array that takes ownership of the vector.
template <class T>
nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>> array_of(std::vector<T> items) {
  auto kept = std::make_unique<std::vector<T>>(std::move(items));
  const std::size_t size = kept->size();
  T* const data = kept->data();
  const nanobind::capsule owner(kept.release(),
                                [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return {data, {size}, owner};
}

/// The same for flags, which a vector stores as bits.
inline nanobind::ndarray<nanobind::numpy, bool, nanobind::ndim<1>> array_of(const std::vector<bool>& flags) {
  auto kept = std::make_unique<bool[]>(flags.size());
  std::ranges::copy(flags, kept.get());
  bool* const data = kept.get();
  const nanobind::capsule owner(kept.release(), [](void* pointer) noexcept { delete[] static_cast<bool*>(pointer); });
  return {data, {flags.size()}, owner};
}

}  // namespace syntony

// Errors between ranks as Python exceptions.
#include "core/error.hpp"

#include <nanobind/nanobind.h>

#include <cstddef>
#include <exception>

#include "bindings/core/signals.hpp"

namespace nb = nanobind;

namespace syntony {
namespace {

constexpr const char* kKinds[] = {"invalid", "mismatch", "timeout", "dead", "aborted", "system"};

/// A CommunicationError with `kind` and `ranks`; wrong arguments are ValueErrors.
void translate(const std::exception_ptr& error, void* type) {
  try {
    std::rethrow_exception(error);
  } catch (const Interrupted&) {
    return;  // Python's error is set
  } catch (const Error& e) {
    if (e.kind() == Error::Kind::invalid) {
      PyErr_SetString(PyExc_ValueError, e.what());
      return;
    }
    nb::list ranks;
    for (const int rank : e.ranks()) ranks.append(rank);
    const nb::object instance = nb::handle(static_cast<PyObject*>(type))(e.what());
    instance.attr("kind") = kKinds[static_cast<std::size_t>(e.kind())];
    instance.attr("ranks") = nb::tuple(ranks);
    PyErr_SetObject(static_cast<PyObject*>(type), instance.ptr());
  }
}

}  // namespace
}  // namespace syntony

void bind_error(nb::module_& m) {
  PyObject* const type = PyErr_NewExceptionWithDoc(
      "syntony._core.CommunicationError",
      "Something went wrong between ranks. `kind`: mismatch, timeout, dead, aborted or system; `ranks`: the guilty.",
      PyExc_RuntimeError, nullptr);
  if (type == nullptr) throw nb::python_error();
  m.attr("CommunicationError") = nb::steal(type);  // the module keeps it, as long as the translator
  nb::register_exception_translator(syntony::translate, type);
}

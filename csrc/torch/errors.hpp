// Translates the runtime's errors to torch's.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "bindings/core/signals.hpp"
#include "core/error.hpp"

namespace syntony::glue {

/// Wrong arguments become c10::Error (a RuntimeError in Python, as from torch's own backends); every failure between
/// ranks becomes c10::DistBackendError. The message stays the same. Other exceptions pass through.
inline std::exception_ptr torch_error(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
    if (e.kind() == Error::Kind::invalid) return std::make_exception_ptr(c10::Error(here, e.what()));
    const bool late = e.kind() == Error::Kind::timeout;
    const std::string advice = late ? " (the timeout is set in init_process_group, new_group or the call)" : "";
    return std::make_exception_ptr(c10::DistBackendError(here, e.what() + advice));
  } catch (...) {
    return std::current_exception();
  }
}

/// Calls the runtime and translates its exceptions to torch's.
template <typename Call>
decltype(auto) in_torch_terms(Call&& call) {
  try {
    return call();
  } catch (const Error&) {
    std::rethrow_exception(torch_error(std::current_exception()));
  } catch (const Interrupted&) {
    const pybind11::gil_scoped_acquire lock;
    throw pybind11::error_already_set();
  }
}

}  // namespace syntony::glue

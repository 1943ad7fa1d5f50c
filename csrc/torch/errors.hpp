// The runtime's errors in torch's words.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "core/error.hpp"

namespace syntony::glue {

/// Wrong arguments become c10::Error (a RuntimeError in Python, as from torch's own backends); everything that happens
/// between ranks becomes c10::DistBackendError. The sentence stays the same. Other exceptions pass through.
inline std::exception_ptr torch_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
    if (e.kind() == Error::Kind::invalid) return std::make_exception_ptr(c10::Error(here, e.what()));
    if (e.kind() == Error::Kind::timeout) {
      const std::string advice = " (the timeout is set in init_process_group, new_group or the call)";
      return std::make_exception_ptr(c10::DistBackendError(here, e.what() + advice));
    }
    return std::make_exception_ptr(c10::DistBackendError(here, e.what()));
  } catch (...) {
    return std::current_exception();
  }
}

[[noreturn]] inline void throw_torch_error(const std::exception_ptr& error) {
  std::rethrow_exception(torch_error(error));
}

/// Calls the runtime; what it throws, torch understands.
template <typename Call>
decltype(auto) in_torch_terms(Call&& call) {
  try {
    return call();
  } catch (const Error&) {
    throw_torch_error(std::current_exception());
  }
}

}  // namespace syntony::glue

// The most common call: whole arrays in even parts.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>

#include "bindings/core/group/python_communicator.hpp"

namespace syntony {

/// Makes the call and waits. Returns false, having done nothing, for any other call and for wrong arguments:
/// collectives/calls.py raises their errors.
bool run_even(const PythonCommunicator& self, std::string_view collective, nanobind::handle input,
              nanobind::handle output, std::string_view op, std::string_view algorithm, nanobind::handle priority,
              nanobind::handle partition, bool async, std::optional<double> timeout);

}  // namespace syntony

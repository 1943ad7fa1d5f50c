// The call that is made nearly always: whole arrays in even parts.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>

#include "bindings/core/group/python_communicator.hpp"

namespace syntony {

/// Makes it and waits. False, and nothing done, for any other call, and for one that is wrong: collectives/calls.py has
/// the sentences.
bool run_even(const PythonCommunicator& self, std::string_view collective, nanobind::handle input,
              nanobind::handle output, std::string_view op, std::string_view algorithm, nanobind::handle priority,
              nanobind::handle partition, bool async, std::optional<double> timeout);

}  // namespace syntony

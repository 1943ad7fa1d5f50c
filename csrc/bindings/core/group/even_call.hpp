// The most common call: whole arrays in even parts.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "bindings/core/group/python_communicator.hpp"

namespace syntony {

/// Makes the call and waits. Returns false, having done nothing, for any other call and for wrong arguments:
/// collectives/calls.py raises their errors. `options`: CallOptions of collectives/verbs.py, in a dictionary because
/// optional arguments would take a tenth of a small call.
bool run_even(const PythonCommunicator& self, std::string_view collective, nanobind::handle input,
              nanobind::handle output, std::string_view op, const nanobind::dict& options);

}  // namespace syntony

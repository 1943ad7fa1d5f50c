// libfabric (libfabric.org) between hosts: EFA, Slingshot, InfiniBand and what else it has providers for. It is loaded
// when it is asked for, and built in where its headers are; libfabric_endpoint.cpp has this function, and
// without_libfabric.cpp where they are not.
#pragma once

#include <memory>

#include "core/frames/port.hpp"

namespace syntony {

/// Throws Error(system), with what to install or to set, where there is no libfabric or none of its providers will do.
[[nodiscard]] std::shared_ptr<Port> open_libfabric_port();

}  // namespace syntony

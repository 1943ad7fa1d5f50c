// libfabric (libfabric.org) between hosts: EFA, Slingshot, InfiniBand and everything else it has providers for. Loaded
// on request, and built in if its headers are available; this function is in libfabric_endpoint.cpp, or else in
// without_libfabric.cpp.
#pragma once

#include <memory>

#include "core/frames/port.hpp"

namespace syntony {

/// Throws Error(system), with what to install or to set, if there is no libfabric or none of its providers is suitable.
[[nodiscard]] std::shared_ptr<Port> open_libfabric_port();

}  // namespace syntony

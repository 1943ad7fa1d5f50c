// UCX (openucx.org) between hosts: InfiniBand, RoCE and what else it knows, by one library. It is loaded when it is
// asked for, and built in where its headers are; ucx_worker.cpp has this function, and without_ucx.cpp where they are
// not.
#pragma once

#include <memory>

#include "core/frames/port.hpp"

namespace syntony {

/// Throws Error(system), with what to install, where there is no UCX.
[[nodiscard]] std::shared_ptr<Port> open_ucx_port();

}  // namespace syntony

// UCX (openucx.org) between hosts: InfiniBand, RoCE and everything else it supports, through one library. Loaded on
// request, and built in if its headers are available; this function is in ucx_worker.cpp, or else in without_ucx.cpp.
#pragma once

#include <memory>

#include "core/frames/port.hpp"

namespace syntony {

/// Throws Error(system), with what to install, if there is no UCX.
[[nodiscard]] std::shared_ptr<Port> open_ucx_port();

}  // namespace syntony

// A stranger that connects, sends something, and reads to the end.
#pragma once

#include <span>

#include "core/tcp/meeting/tcp_address.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {

/// Everything sent to a peer that connects to `door` and sends just `input`. fault() if nobody listens.
[[nodiscard]] Bytes answer_of(const TcpAddress& door, std::span<const std::byte> input);

}  // namespace syntony::fuzz

// A stranger that connects, says something, and listens to the end.
#pragma once

#include <span>

#include "core/tcp/meeting/tcp_address.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {

/// Everything that is said to whoever connects to `door`, sends `input` and no more. fault() when nobody is there.
[[nodiscard]] Bytes answer_of(const TcpAddress& door, std::span<const std::byte> input);

}  // namespace syntony::fuzz

// Converts bodies of control messages to bytes and back. Decoding trusts nothing: an empty result means invalid input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/control.hpp"

namespace syntony {

/// What a rank answers to an inquiry.
struct ControlStatus {
  std::uint64_t version = 0;                           // increases with each status
  std::array<std::uint64_t, kPriorities> completed{};  // by priority
  std::vector<Descriptor> started;                     // for each priority, oldest first
};

[[nodiscard]] std::vector<std::byte> encode(const ControlStatus& status);
[[nodiscard]] std::optional<ControlStatus> decode_status(std::span<const std::byte> body);

/// Keeps the first 4096 ranks and the first 16 KiB of the message, which is read back in its legible() form.
[[nodiscard]] std::vector<std::byte> encode(const Abort& abort);
[[nodiscard]] std::optional<Abort> decode_abort(std::span<const std::byte> body);

}  // namespace syntony

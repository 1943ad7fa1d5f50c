// By which way a collective goes through a host's memory, by its size alone. All ranks must take the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/program/collective.hpp"

namespace syntony {

enum class SharedWay : std::uint8_t {
  exchange,   // in pieces, through copies that stay in cache (staged_steps.cpp);
  two_shot,   // the same, of sums of which every rank takes a share;
  reference,  // straight from the peers' buffers to where it is wanted, sums in shares (reference_steps.cpp)
};

/// What a rank shows in a round, at most.
inline constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;

/// `bytes`: of the longest block. `readable`: peers' buffers may be read.
[[nodiscard]] SharedWay shared_way(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable);

[[nodiscard]] std::string_view name_of(SharedWay way);

}  // namespace syntony

// How a collective may move through a host's memory. All ranks must take the same way: by a call's size alone, or,
// where there are several, as they agree after measuring (agreed_way.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/program/collective.hpp"
#include "core/sizes.hpp"

namespace syntony {

enum class SharedWay : std::uint8_t {
  exchange,   // in pieces, through copies that stay in cache (staged_steps.cpp);
  two_shot,   // the same, but every rank sums a share of the elements;
  reference,  // directly from the peers' buffers to the destination, sums in shares (reference_steps.cpp)
};

/// A way, and whether what it writes to outputs bypasses the caches (but for what the system reads into them).
struct SharedChoice {
  SharedWay way;
  bool streams;
  bool operator==(const SharedChoice&) const = default;
};

/// The most that a rank shows in a round.
[[nodiscard]] std::size_t piece_bytes(std::uint32_t ranks);

/// Whether two ranks swap the stages in which they show pieces (shared_rounds.hpp).
[[nodiscard]] bool swaps_stages(std::uint32_t ranks);

/// Where pieces of `bytes` bytes are shown rotates through this many bytes of a stage, at most
/// StageBuffer::kStageBytes; 0 if stages are swapped.
[[nodiscard]] std::size_t turn_bytes(std::uint32_t ranks, std::size_t bytes);

/// The usual way. `bytes`: of the longest block. `readable`: whether peers' buffers can be read.
[[nodiscard]] SharedWay shared_way(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable);

/// The usual way; outputs bypass the caches if they would not stay there.
[[nodiscard]] SharedChoice usual_choice(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable);
/// Whether there may be another.
[[nodiscard]] bool has_choices(Collective collective, std::size_t bytes);
/// Those that may be the fastest, the usual one first.
[[nodiscard]] std::vector<SharedChoice> shared_choices(Collective collective, std::uint32_t ranks, std::size_t bytes,
                                                       bool readable);

[[nodiscard]] std::string_view name_of(SharedWay way);

}  // namespace syntony

// Turns a Call into calls that can run: its parts, with blocks laid out in memory as the chosen Program requires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/call.hpp"
#include "core/control.hpp"
#include "core/selection/selector.hpp"

namespace syntony {

/// A Call that is ready to run, and what runs it.
struct StagedCall {
  Call call;  // inputs may lie in `storage` or alias the outputs
  Selector::Selection selection;
  Descriptor descriptor;  // without sequence, priority and fingerprint until launched
  Lifetime lifetime;
  std::vector<std::byte> storage;
  /// What runs it instead, asked with its sequence number when it is admitted (rail_balance.hpp); may be empty.
  std::function<std::optional<Selector::Selection>(std::uint64_t)> reconsidered;
  std::vector<Block> unpacked;  // where the only block's result is unpacked to, in order; empty: nowhere else
};

/// True if a block's output overlaps an input other than its own. An executor could then overwrite input that it has
/// yet to read.
[[nodiscard]] bool crossing(const Call& call);

/// Splits the call into parts, each with the next elements of all blocks, together at most options.partition bytes.
[[nodiscard]] std::vector<Call> cut(const Call& call, std::uint32_t ranks);

/// Applies weights to inputs, and copies inputs if outputs cross them (`crossed`). `counts`: Descriptor::counts.
[[nodiscard]] StagedCall stage(Call&& call, Selector::Selection&& selection, std::uint32_t ranks, bool crossed,
                               std::uint64_t counts);
/// Programs are verified for disjoint buffers, for shared ones, or for both; this arranges the buffers in a form that
/// fits. May write outputs, so all parts of a call must be staged first.
void fit(StagedCall& staged);

}  // namespace syntony

// From a Call to one that can run: its parts, and blocks in memory as the chosen Program is proven for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/call.hpp"
#include "core/control.hpp"
#include "core/selection/selector.hpp"

namespace syntony {

/// A Call that is ready to run, and what runs it.
struct StagedCall {
  Call call;  // inputs may lie in `storage`, or where the outputs are
  Selector::Selection selection;
  Descriptor descriptor;  // without sequence, priority and fingerprint, until it is launched
  Lifetime lifetime;
  std::vector<std::byte> storage;
  std::vector<Block> unpacked;  // where the only block's result goes, one after the other; empty: nowhere else
};

/// Does a block's output overlap an input, other than by being its own block's? An executor could then overwrite what
/// it has still to read.
[[nodiscard]] bool crossing(const Call& call);

/// The call in parts: each with the next elements of all blocks, together at most options.partition bytes.
[[nodiscard]] std::vector<Call> cut(const Call& call, std::uint32_t ranks);

/// Weights inputs, and copies those that are `crossed` by outputs. `counts`: Descriptor::counts.
[[nodiscard]] StagedCall stage(Call&& call, Selector::Selection&& selection, std::uint32_t ranks, bool crossed,
                               std::uint64_t counts);
/// Programs are proven for disjoint buffers, for shared ones, or for both: brings the buffers into a form that fits.
/// May write outputs, so all parts of a call must be staged before.
void fit(StagedCall& staged);

}  // namespace syntony

// Distributes a relay's incoming capacity over its outgoing links, as evenly over all pairs as possible.
//
//           out   3   3   3
//     in 3      [ .   2   1 ]      a dot: a pair that is not wanted (back to where it came from)
//        3      [ 1   .   2 ]
//        3      [ 2   1   . ]      rows and columns sum to the capacities, or what is left finds no wanted pair
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Adds to `shares[i * out.size() + o]` what goes from in-link i to out-link o, for `wanted` pairs only, and subtracts
/// it from `in[i]` and `out[o]`.
void share_evenly(std::span<std::int64_t> in, std::span<std::int64_t> out, const std::vector<bool>& wanted,
                  std::span<std::int64_t> shares);

}  // namespace syntony

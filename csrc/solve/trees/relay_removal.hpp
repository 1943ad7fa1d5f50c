// Step 1 of forest.hpp: reduces a network of receivers and relays to one of receivers only.
#pragma once

#include <cstdint>
#include <vector>

#include "solve/trees/forest.hpp"

namespace syntony {

/// A link between receivers that stands for a route through relays.
struct DirectLink {
  std::uint32_t tail = 0, head = 0;
  std::int64_t capacity = 0;
  std::vector<std::uint32_t> route;  ///< links of the original network
};

/// Splits every relay evenly, without checking whether the trees still fit. Throws std::invalid_argument for an
/// unbalanced relay.
[[nodiscard]] std::vector<DirectLink> split_evenly(const ForestRequest& request);

/// Links between receivers over which the request's trees fit if they fit in the request's network. Throws
/// std::invalid_argument for an unbalanced relay, or if the trees do not fit in the first place.
[[nodiscard]] std::vector<DirectLink> without_relays(const ForestRequest& request);

}  // namespace syntony

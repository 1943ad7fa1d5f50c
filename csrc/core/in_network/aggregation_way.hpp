// A rank's path up the tree of aggregators, and how many ranks go through each of them.
//
//      ways of ranks 0-3:  a,root      0 1 2 3     4 5 6 7
//      ways of ranks 4-7:  b,root        └ a ┘       └ b ┘        rank 0: to a, 4 ranks; above it "root 8"
//                                         └── root ──┘
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tcp/meeting/tcp_address.hpp"

namespace syntony {

struct AggregationWay {
  TcpAddress address;       // the first
  std::uint32_t under = 0;  // ranks below it
  std::string above;        // "ADDRESS:PORT RANKS" of the others, separated by commas

  /// The way of `rank`. Throws Error(invalid) for an invalid address, or if the ranks' ways do not end in one root.
  AggregationWay(const std::vector<std::string>& ways, std::uint32_t rank);
  /// The way of the aggregator that begins `above`, for its own Hello to the next. Throws Error(invalid).
  explicit AggregationWay(const std::string& above);
};

}  // namespace syntony

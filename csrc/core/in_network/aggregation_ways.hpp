// How the ranks of a group come to their aggregators. No ways: by none.
#pragma once

#include <string>
#include <vector>

namespace syntony {

struct AggregationWays {
  /// SYNTONY_AGGREGATOR of each rank: HOST:PORT of its own aggregator, then those above it, up to the root, with commas
  /// between. Hosts are numbers. Empty: the rank has none. Several ways, with semicolons between, are one in each tree
  /// over which a group's sums are spread.
  std::vector<std::string> by_rank;
  std::string secret;  // the aggregators'

  /// The ways in each tree. Throws Error(invalid) where ranks say different numbers of ways.
  [[nodiscard]] std::vector<AggregationWays> trees() const;
};

}  // namespace syntony

// How the ranks of a group reach their aggregators. No ways: no aggregators.
#pragma once

#include <string>
#include <vector>

namespace syntony {

struct AggregationWays {
  /// SYNTONY_AGGREGATOR of each rank: HOST:PORT of its own aggregator, then those above it, up to the root, separated
  /// by commas. Hosts are numeric. Empty: the rank has none. Several ways, separated by semicolons, are one per tree; a
  /// group's sums are spread over the trees.
  std::vector<std::string> by_rank;
  std::string secret;  // shared with the aggregators

  /// The ways in each tree. Throws Error(invalid) if ranks name different numbers of ways.
  [[nodiscard]] std::vector<AggregationWays> trees() const;
};

}  // namespace syntony

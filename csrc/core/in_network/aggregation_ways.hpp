// How the ranks of a group come to their aggregators. No ways: by none.
#pragma once

#include <string>
#include <vector>

namespace syntony {

struct AggregationWays {
  /// SYNTONY_AGGREGATOR of each rank: HOST:PORT of its own aggregator, then those above it, up to the root, with commas
  /// between. Hosts are numbers. Empty: the rank has none.
  std::vector<std::string> by_rank;
  std::string secret;  // the aggregators'
};

}  // namespace syntony

// One path per demand such that no link carries much more than necessary: unsplittable multi-commodity flow.
//
// Links have prices that rise exponentially with their load, and demands move one by one to paths that have become
// cheaper, until none moves or the fullest link reaches the target:
//
//      price of link e  =  exp(steepness * (load_e / capacity_e / time - 1)) / capacity_e
//
// (Multiplicative weights: Plotkin, Shmoys and Tardos 1995; Garg and Koenemann 2007. Shortest paths from one source
// serve all of its demands: Fleischer 2000.) If thousands of demands share a link, keeping each on a single path costs
// almost nothing. The prices also prove how good the result is: any routing pays at least the cheapest paths
// (synth/bounds/prices.py recomputes that in integers).
//
// If demands have paths already, of which few are lost, most stay: first those without a path are routed, then those on
// links that are too full, a part of the sources at a time. Only if that is not enough, all move.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace syntony {

/// Demand i takes weight[i] from source[i] to target[i] (another node); demands of one source are adjacent. Hop h of
/// the paths so far is of demand hop_demand[h] (negative: of none) and takes hop_link[hop_offset[h] .. hop_offset[h +
/// 1]]; the hops of a demand follow each other by hop_step. A demand with a negative link, or without hops, has no
/// path.
struct PathRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const double> capacities;
  std::span<const std::int32_t> source, target;
  std::span<const std::int64_t> weight;
  std::span<const std::int32_t> hop_demand, hop_step;
  std::span<const std::int64_t> hop_offset;
  std::span<const std::int32_t> hop_link;
  double time = 0;       ///< lower bound on load / capacity of the fullest link, for any routing of all demands
  double tolerance = 0;  ///< acceptable excess over `time`: 0.01 is 1 %
  double seconds = 0;    ///< maximum wall-clock time; at least one round is made
  /// At most; each has a search from every source for paths, and one for the bound.
  std::uint32_t rounds = std::numeric_limits<std::uint32_t>::max();
};

/// The paths of the best round, and the prices, one per link, that proved the best bound, with that bound on `time`.
/// Demand demand[i] takes link[offset[i] .. offset[i + 1]]; demands that are not listed keep the path that they had.
struct BalancedPaths {
  std::vector<std::int64_t> demand, offset, link;
  std::vector<double> prices;
  double time = 0;    ///< of the fullest link
  double proven = 0;  ///< lower bound for any routing, by the prices, in floating point; 0: no prices were needed
};

/// Throws std::invalid_argument for inconsistent columns, or if a demand has no path.
[[nodiscard]] BalancedPaths balanced_paths(const PathRequest& request);

}  // namespace syntony

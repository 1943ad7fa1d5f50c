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
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Demand i takes weight[i] from source[i] to target[i] (another node); demands of one source are adjacent. Its current
/// path is path_link[path_offset[i] .. path_offset[i + 1]], empty if it has none.
struct PathRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const double> capacities;
  std::span<const std::int32_t> source, target;
  std::span<const std::int64_t> weight;
  std::span<const std::int64_t> path_offset, path_link;
  double time = 0;       ///< lower bound on load / capacity of the fullest link, for any routing of all demands
  double tolerance = 0;  ///< acceptable excess over `time`: 0.01 is 1 %
  double seconds = 0;    ///< maximum wall-clock time; at least one round is made
};

/// The paths of the best round, and the prices, one per link, that proved the best bound, with that bound on `time`.
struct BalancedPaths {
  std::vector<std::int64_t> offset, link;
  std::vector<double> prices;
  double time = 0;    ///< of the fullest link
  double proven = 0;  ///< lower bound for any routing, by the prices, in floating point
};

/// Throws std::invalid_argument for inconsistent columns, or if a demand has no path.
[[nodiscard]] BalancedPaths balanced_paths(const PathRequest& request);

}  // namespace syntony

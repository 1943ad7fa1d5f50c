// One path for each demand, so that no link carries much more than it must: unsplittable multi-commodity flow.
//
// Links have prices that rise exponentially with what they carry, and demands move to paths that have become cheaper,
// one after another, until nobody moves or the fullest link is as empty as was hoped:
//
//      price of link e  =  exp(steepness * (load_e / capacity_e / time - 1)) / capacity_e
//
// (Multiplicative weights: Plotkin, Shmoys and Tardos 1995; Garg and Koenemann 2007; of many demands at once, shortest
// paths from one source serve all of its demands: Fleischer 2000.) Where thousands of demands share a link, keeping
// each whole costs next to nothing. The prices themselves prove how good that is: whatever is routed pays at least its
// cheapest path (synth/bounds/prices.py counts that again in whole numbers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Demand i takes weight[i] from source[i] to target[i] (another node); demands of one source lie together. Its path
/// so far is path_link[path_offset[i] .. path_offset[i + 1]], empty where it has none.
struct PathRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const double> capacities;
  std::span<const std::int32_t> source, target;
  std::span<const std::int64_t> weight;
  std::span<const std::int64_t> path_offset, path_link;
  double time = 0;       ///< load / capacity below which no routing of all demands can bring the fullest link
  double tolerance = 0;  ///< how far above `time` is good enough: 0.01 is 1 %
  double seconds = 0;    ///< of wall clock, at most; one round is made in any case
};

/// The paths of the best round; and the prices, one per link, that proved the most, with what they proved of `time`.
struct BalancedPaths {
  std::vector<std::int64_t> offset, link;
  std::vector<double> prices;
  double time = 0;    ///< of the fullest link
  double proven = 0;  ///< no routing needs less, by the prices, in floating point
};

/// Throws std::invalid_argument for columns that do not fit together, and for a demand that no path serves.
[[nodiscard]] BalancedPaths balanced_paths(const PathRequest& request);

}  // namespace syntony

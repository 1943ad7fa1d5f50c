// Tuner: what the members of a group put in the place of our own choices of algorithms.
//
//      metadata(rank, boxes) ──── all ranks tell each other, in the last step of their meeting ────▶ agreed(boxes, all)
//
// What ranks run must be the same everywhere, so `agreed` must depend on nothing but its arguments. Groups made out of
// a group (split, shrink) have its Tuner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/in_network/aggregation_ways.hpp"
#include "core/program/program.hpp"
#include "core/selection/size_range.hpp"

namespace syntony {

/// A table of sizes under a name; under `auto` it takes the place of our own choice (selector.hpp, `set_size_ranges`).
struct SizeTable {
  std::string name;
  Collective collective;
  std::vector<SizeRange> ranges;
};

struct Tuning {
  std::vector<std::pair<std::string, std::shared_ptr<const Program>>>
      programs;  // by name; the caller has had them proven
  std::vector<SizeTable> tables;
  std::vector<std::vector<std::uint32_t>> levels;  // hosts that are near each other; empty: nothing is known
  AggregationWays aggregation;
};

class Tuner {
 public:
  using Boxes = std::vector<std::vector<std::uint32_t>>;

  Tuner() = default;
  virtual ~Tuner() = default;
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// What `rank` tells the others: at most kLongestPost bytes (control.hpp).
  [[nodiscard]] virtual std::string metadata(std::uint32_t rank, const Boxes& boxes) const = 0;
  /// What the group does, from everybody's metadata in rank order. What it throws ends the making of the group.
  [[nodiscard]] virtual Tuning agreed(const Boxes& boxes, const std::vector<std::string>& metadata) const = 0;
};

}  // namespace syntony

// Tuner: lets the members of a group replace our own choices of algorithms.
//
//      metadata(rank, boxes) ──── all ranks tell each other, in the last step of their meeting ────▶ agreed(boxes, all)
//
// Ranks must run the same everywhere, so `agreed` must depend on nothing but its arguments. Groups derived from a group
// (split, shrink) inherit its Tuner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/in_network/aggregation_ways.hpp"
#include "core/program/program.hpp"
#include "core/selection/size_range.hpp"

namespace syntony {

/// A named size table; under `auto` it replaces our own choice (selector.hpp, `set_size_ranges`).
struct SizeTable {
  std::string name;
  Collective collective;
  std::vector<SizeRange> ranges;
};

struct Tuning {
  std::vector<std::pair<std::string, std::shared_ptr<const Program>>>
      programs;  // by name; already checked by the caller
  std::vector<SizeTable> tables;
  std::vector<std::vector<std::uint32_t>> levels;  // hosts that are near each other; empty: unknown
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
  /// What the group does, from all ranks' metadata in rank order. If it throws, creating the group fails.
  [[nodiscard]] virtual Tuning agreed(const Boxes& boxes, const std::vector<std::string>& metadata) const = 0;
};

}  // namespace syntony

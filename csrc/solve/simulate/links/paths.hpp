// Paths: sets of paths over links, from which a message picks its path when it starts.
//
//     set 0   path 0   link 3 ─▶ link 7            set s is the paths set_offset[s] .. set_offset[s + 1], path p the
//             path 1   link 4 ─▶ link 8            links link[path_offset[p]] .. link[path_offset[p + 1]]
//     set 1   path 2   link 5
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace syntony {

enum class PathPolicy : std::uint8_t {
  fixed,         // the first path of the set
  spray,         // an equal part of the bytes over every path of the set, at one common rate
  least_loaded,  // the path with the least traffic in flight at the start: see PathChooser
};
inline constexpr std::uint8_t kPathPolicies = 3;

struct Paths {
  std::span<const std::int64_t> set_offset;   // per set of paths, at least one
  std::span<const std::int64_t> path_offset;  // per path
  std::span<const std::int32_t> link;         // of the paths, concatenated,
  std::span<const double> weight;             // and what each carries per byte of the message

  [[nodiscard]] std::size_t sets() const { return set_offset.size() - 1; }
  [[nodiscard]] std::size_t paths() const { return path_offset.size() - 1; }
  /// Throws std::invalid_argument naming the column and the row; `links` is the number of links.
  void validate(std::size_t links) const;
};

}  // namespace syntony

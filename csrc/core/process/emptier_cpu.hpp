// Where ranks that wait on one CPU should move to. What they know of each other is a hint: a CPU that a rank has named
// may be outdated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace syntony {

/// A rank that is awake, and the CPU on which it waited last.
struct AwakeRank {
  std::uint32_t rank = 0;
  std::uint32_t cpu = 0;
};

/// A CPU of `allowed`, ascending, with fewer of these ranks than `cpu`, where `rank` is, if it is its turn to move
/// there (so that not all ranks leave at once).
[[nodiscard]] inline std::optional<std::uint32_t> emptier_cpu(std::span<const AwakeRank> awake, std::uint32_t rank,
                                                              std::uint32_t cpu,
                                                              std::span<const std::uint32_t> allowed) {
  std::vector<std::size_t> waiting(allowed.size(), 0);
  for (const AwakeRank& peer : awake) {
    if (peer.rank > rank && peer.cpu == cpu) return std::nullopt;  // that one should move, not this one
    const auto place = std::ranges::lower_bound(allowed, peer.cpu);
    if (place != allowed.end() && *place == peer.cpu) ++waiting[static_cast<std::size_t>(place - allowed.begin())];
  }
  const auto here = std::ranges::find(allowed, cpu);
  if (here == allowed.end()) return std::nullopt;
  const auto least = std::ranges::min_element(waiting);
  const std::size_t ours = waiting[static_cast<std::size_t>(here - allowed.begin())];
  if (*least + 2 > ours) return std::nullopt;
  return allowed[static_cast<std::size_t>(least - waiting.begin())];
}

}  // namespace syntony

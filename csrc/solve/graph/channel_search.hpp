// Channels through all GPUs of a host: as many orders as the links can carry together, by depth-first search.
//
//     net 0 ─► 0 ─► 3 ─► 2 ─► 1 ─► net 0        a channel; each hop costs the links on its way
//              └► 2 ─► ..                       tried next where that leads nowhere
//
// A channel grows hop by hop, first along the hop whose links have the most room left. A complete channel is tried
// again as the next one; then the next channel begins. NCCL's search (src/graph/search.cc) has this shape, too; but
// here a channel that cannot be completed in its share of the steps is abandoned, so that one bad start does not use up
// all steps.
//
// Effort is counted in steps (hops tried), never in time, so results are the same on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Nodes are the GPUs, then the network devices. Hop a -> b is number a * (gpus + nets) + b; it costs link[i] cost[i]
/// for i in [offset[hop], offset[hop + 1]), and does not exist if that is empty. Without devices a channel stays in the
/// host: a closed one ends where it began. With devices it begins at one, and a closed one ends at the same.
struct ChannelProblem {
  std::uint32_t gpus;
  std::uint32_t nets;
  bool closed;
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const double> cost;
  /// Capacity of each link, in units of one channel's speed.
  std::span<const double> room;
};

/// Up to `most` channels that the links carry together, found in at most `steps` steps: for each its network device (-1
/// without) and its GPUs in order. `turn` varies how ties between hops are broken. Throws std::invalid_argument for a
/// problem with inconsistent columns.
std::vector<std::int32_t> find_channels(const ChannelProblem& problem, std::uint32_t most, std::uint64_t steps,
                                        std::uint32_t turn);

}  // namespace syntony

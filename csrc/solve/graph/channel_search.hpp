// Channels through all GPUs of a host: as many orders as the links carry together, depth first.
//
//     net 0 ─► 0 ─► 3 ─► 2 ─► 1 ─► net 0        a channel; each hop costs the links on its way
//              └► 2 ─► ..                       tried next where that leads nowhere
//
// A channel grows hop by hop, first along the hop whose links have the most room left. A whole channel is tried again
// as the next one; then the next channel begins. Of NCCL's search (src/graph/search.cc) this has the shape; but a
// channel that cannot be completed in its share of the steps is given up, so that one bad beginning does not use up all
// of them.
//
// Effort is counted in steps (hops tried), never in time: the same question has the same answer on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Nodes are the GPUs, then the network devices. Hop a -> b is number a * (gpus + nets) + b; it costs link[i] cost[i]
/// for i in [offset[hop], offset[hop + 1]), and there is none where that is empty. Without devices a channel stays in
/// the host: closed, it ends where it began. With them it begins at one, and closed, it ends at the same.
struct ChannelProblem {
  std::uint32_t gpus;
  std::uint32_t nets;
  bool closed;
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const double> cost;
  /// What each link carries, in the speed of one channel.
  std::span<const double> room;
};

/// Up to `most` channels that the links carry together, found in at most `steps` steps: for each its network device (-1
/// without) and its GPUs in order. `turn` breaks ties between hops otherwise.
/// Throws std::invalid_argument for a problem whose columns do not fit together.
std::vector<std::int32_t> find_channels(const ChannelProblem& problem, std::uint32_t most, std::uint64_t steps,
                                        std::uint32_t turn);

}  // namespace syntony

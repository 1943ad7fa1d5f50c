#include "core/program/moves/tree.hpp"

#include <algorithm>

#include "core/program/moves/moves.hpp"

namespace syntony {

Tree rerooted(Tree tree, std::uint32_t root) {
  std::uint32_t below = root, here = root;
  for (;;) {  // reverse every edge on the path up from the new root
    const std::uint32_t above = tree.parent[here];
    tree.parent[here] = below;
    if (here == tree.root) break;
    below = here;
    here = above;
  }
  tree.root = root;
  return tree;
}

std::vector<std::uint32_t> path_to_root(const Tree& tree, std::uint32_t from) {
  std::vector<std::uint32_t> path{from};
  while (path.back() != tree.root) path.push_back(tree.parent[path.back()]);
  return path;
}

std::vector<std::vector<std::uint32_t>> levels(const Tree& tree) {
  const auto ranks = static_cast<std::uint32_t>(tree.parent.size());
  std::vector<std::vector<std::uint32_t>> children(ranks);
  for (std::uint32_t shift = 1; shift < ranks; ++shift) {  // staggered: r+1, r+2, ..
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (rank != tree.root && (rank + ranks - tree.parent[rank]) % ranks == shift) {
        children[tree.parent[rank]].push_back(rank);
      }
    }
  }
  std::vector<std::vector<std::uint32_t>> result{{tree.root}};
  for (;;) {
    std::vector<std::uint32_t> below;
    for (const std::uint32_t rank : result.back()) {
      below.insert(below.end(), children[rank].begin(), children[rank].end());
    }
    if (below.empty()) return result;
    result.push_back(std::move(below));
  }
}

void flood_all(ProgramBuilder& builder, std::span<const Flow> flows, Space from) {
  std::vector<std::vector<std::vector<std::uint32_t>>> by_depth;
  std::size_t deepest = 0;
  for (const Flow& flow : flows) {
    by_depth.push_back(levels(flow.tree));
    deepest = std::max(deepest, by_depth.back().size());
  }
  const auto root_slot = [&](const Flow& flow) {
    return from == Space::input ? builder.input(flow.tree.root, flow.chunk)
                                : builder.output(flow.tree.root, flow.chunk);
  };
  for (std::size_t depth = 1; depth < deepest; ++depth) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const auto& [chunk, tree, channel] = flows[i];
      if (depth >= by_depth[i].size()) continue;
      for (const std::uint32_t rank : by_depth[i][depth]) {
        const std::uint32_t parent = tree.parent[rank];
        const Slot source = parent == tree.root ? root_slot(flows[i]) : builder.output(parent, chunk);
        builder.transfer(parent, source, rank, builder.output(rank, chunk), channel);
      }
    }
  }
  if (from == Space::output) return;
  for (const Flow& flow : flows) {
    builder.copy(flow.tree.root, builder.output(flow.tree.root, flow.chunk), root_slot(flow));
  }
}

void sum_up_all(ProgramBuilder& builder, std::span<const Flow> flows) {
  std::vector<std::vector<std::vector<std::uint32_t>>> by_depth;
  std::vector<std::vector<Slot>> partial(flows.size());  // per flow and rank: where the sum of its subtree is
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    by_depth.push_back(levels(flows[i].tree));
    deepest = std::max(deepest, by_depth.back().size());
    for (std::uint32_t rank = 0; rank < builder.ranks(); ++rank) {
      partial[i].push_back(builder.input(rank, flows[i].chunk));
    }
  }
  for (std::size_t depth = deepest - 1; depth > 0; --depth) {
    std::vector<Sum> sums;
    std::vector<std::size_t> flow_of;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (depth >= by_depth[i].size()) continue;
      const auto& [chunk, tree, channel] = flows[i];
      for (const std::uint32_t child : by_depth[i][depth]) {
        const std::uint32_t parent = tree.parent[child];
        if (sums.empty() || flow_of.back() != i || sums.back().owner != parent) {
          sums.push_back({parent, chunk, builder.place(parent, chunk), {{parent, partial[i][parent]}}, channel});
          flow_of.push_back(i);
        }
        sums.back().parts.push_back({child, partial[i][child]});
      }
    }
    for (std::size_t s = 0; s < sums.size(); ++s) {
      auto& parts = sums[s].parts;
      if (parts.size() == 2) {
        std::ranges::reverse(parts);  // message + own: summed on arrival
      } else {
        std::ranges::sort(parts, {}, &Held::rank);
      }
      partial[flow_of[s]][sums[s].owner] = sums[s].dst;
    }
    sum_all(builder, sums);
  }
  if (builder.ranks() > 1) return;
  for (const Flow& flow : flows) builder.copy(0, builder.output(0, flow.chunk), builder.input(0, flow.chunk));
}

}  // namespace syntony

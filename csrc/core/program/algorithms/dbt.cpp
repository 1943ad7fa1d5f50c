#include "core/program/algorithms/dbt.hpp"

#include <algorithm>

#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

using TwoTrees = std::array<Tree, 2>;

/// Positions 1..n of the picture; the rank at a position is rank_at(position).
template <typename RankAt>
Tree in_order_tree(std::uint32_t ranks, RankAt rank_at) {
  Tree tree{.root = 0, .parent = std::vector<std::uint32_t>(ranks)};
  for (std::uint32_t position = 1; position <= ranks; ++position) {
    const std::uint32_t lowest = position & (~position + 1);
    const std::uint32_t below = position ^ lowest;
    const std::uint32_t above = below | (lowest << 1);
    const std::uint32_t parent = above <= ranks ? above : below;  // 0: the highest power of two has no parent
    const std::uint32_t rank = rank_at(position);
    tree.parent[rank] = parent == 0 ? rank : rank_at(parent);
    if (parent == 0) tree.root = rank;
  }
  return tree;
}

/// Both trees over all ranks but `root`, with `root` above both.
TwoTrees below_root(std::uint32_t ranks, std::uint32_t root) {
  TwoTrees result;
  if (ranks == 1) return double_binary_tree(1);
  const TwoTrees others = double_binary_tree(ranks - 1);
  const auto rank_of = [root](std::uint32_t other) { return other < root ? other : other + 1; };
  for (std::size_t t = 0; t < 2; ++t) {
    result[t] = {.root = root, .parent = std::vector<std::uint32_t>(ranks, root)};
    for (std::uint32_t other = 0; other + 1 < ranks; ++other) {
      if (other != others[t].root) result[t].parent[rank_of(other)] = rank_of(others[t].parent[other]);
    }
  }
  return result;
}

/// Chunk 2b + t is the half of block b that goes over tree t, rooted at the block's owner (or left as it is).
std::vector<Flow> half_flows(const TwoTrees& trees, std::uint32_t blocks, bool root_at_owner) {
  std::vector<Flow> flows;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint16_t t = 0; t < 2; ++t) {
      flows.push_back(
          {.chunk = 2 * block + t, .tree = root_at_owner ? rerooted(trees[t], block) : trees[t], .channel = t});
    }
  }
  return flows;
}

/// `towards` holds both trees rerooted at `to`. Returns the shorter path there, alternating between the trees on a tie.
Route shorter_route(const TwoTrees& towards, std::uint32_t from, std::uint32_t to, std::uint32_t chunk) {
  const std::array<std::vector<std::uint32_t>, 2> ways{path_to_root(towards[0], from), path_to_root(towards[1], from)};
  const bool equal = ways[0].size() == ways[1].size();
  const std::size_t t = equal ? (from + to) % 2 : (ways[1].size() < ways[0].size() ? 1 : 0);
  return {.chunk = chunk, .path = ways[t], .channel = static_cast<std::uint16_t>(t)};
}

std::vector<Route> all_to_all_routes(const TwoTrees& trees, std::uint32_t ranks) {
  std::vector<TwoTrees> towards;
  for (std::uint32_t to = 0; to < ranks; ++to) towards.push_back({rerooted(trees[0], to), rerooted(trees[1], to)});
  std::vector<Route> routes;
  for (std::uint32_t shift = 0; shift < ranks; ++shift) {
    for (std::uint32_t from = 0; from < ranks; ++from) {
      const std::uint32_t to = (from + shift) % ranks;
      routes.push_back(shorter_route(towards[to], from, to, from * ranks + to));
    }
  }
  return routes;
}

std::vector<Route> rooted_routes(const TwoTrees& trees, std::uint32_t ranks, bool towards_root) {
  std::vector<Route> routes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Route route = shorter_route(trees, rank, trees[0].root, rank);
    if (!towards_root) std::ranges::reverse(route.path);
    routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace

std::array<Tree, 2> double_binary_tree(std::uint32_t ranks) {
  const bool even = ranks % 2 == 0;
  return {in_order_tree(ranks, [](std::uint32_t position) { return position - 1; }),
          in_order_tree(ranks, [&](std::uint32_t position) { return even ? ranks - position : position % ranks; })};
}

Program dbt(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  const bool routed =
      collective == Collective::all_to_all || collective == Collective::gather || collective == Collective::scatter;
  ProgramBuilder builder("dbt", collective, ranks, root, equal_chunks(collective, ranks, routed ? 1 : 2));
  const TwoTrees trees = double_binary_tree(ranks);
  switch (collective) {
    case Collective::all_reduce: {
      const std::vector<Flow> flows = half_flows(trees, 1, false);
      sum_up_all(builder, flows);
      flood_all(builder, flows, Space::output);
      break;
    }
    case Collective::all_gather:
      flood_all(builder, half_flows(trees, ranks, true));
      break;
    case Collective::reduce_scatter:
      sum_up_all(builder, half_flows(trees, ranks, true));
      break;
    case Collective::broadcast:
      flood_all(builder, half_flows(below_root(ranks, root), 1, false));
      break;
    case Collective::reduce:
      sum_up_all(builder, half_flows(below_root(ranks, root), 1, false));
      break;
    case Collective::all_to_all:
      relay_all(builder, all_to_all_routes(trees, ranks));
      break;
    case Collective::gather:
    case Collective::scatter:
      relay_all(builder, rooted_routes(below_root(ranks, root), ranks, collective == Collective::gather));
      break;
  }
  return builder.finish();
}

}  // namespace syntony

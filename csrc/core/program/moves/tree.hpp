// Trees over the ranks and their two uses: flooding from the root and summing up to the root.
//
//        flood          sum
//          r             r
//         / \           / \        A sum is n-ary at every join: own value and all children's are added in rank
//        v   v         ^   ^       order and rounded once. Flows over many trees are interleaved by depth, so that
//       a     b       a     b      every rank forwards what it has instead of finishing one flow first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program/program_builder.hpp"

namespace syntony {

/// A spanning tree: parent[r] is the parent of r; parent[root] == root.
struct Tree {
  std::uint32_t root = 0;
  std::vector<std::uint32_t> parent;
};

/// The same edges with another rank as the root.
[[nodiscard]] Tree rerooted(Tree tree, std::uint32_t root);

/// Ranks from `from` up to the root, both included.
[[nodiscard]] std::vector<std::uint32_t> path_to_root(const Tree& tree, std::uint32_t from);

/// Ranks by depth: levels[0] is the root. Children of one parent are adjacent.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> levels(const Tree& tree);

/// The path of one chunk over one tree.
struct Flow {
  std::uint32_t chunk = 0;
  Tree tree;
  std::uint16_t channel = 0;
};

/// From the root's input, or its output if that holds a finished sum (`from`), to every rank's output.
void flood_all(ProgramBuilder& builder, std::span<const Flow> flows, Space from = Space::input);

/// The sum of all inputs into the root's output.
void sum_up_all(ProgramBuilder& builder, std::span<const Flow> flows);

}  // namespace syntony

#include "core/program/algorithms/direct.hpp"

#include <string>
#include <utility>

#include "core/program/collective.hpp"
#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

std::vector<Held> inputs_of_all(const ProgramBuilder& builder, std::uint32_t chunk) {
  std::vector<Held> parts;
  for (std::uint32_t rank = 0; rank < builder.ranks(); ++rank) parts.push_back({rank, builder.input(rank, chunk)});
  return parts;
}

Program in_one_shot(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
                    Association association) {
  const std::vector<Chunk> chunks = equal_chunks(collective, ranks, 1);  // chunk b is block b
  ProgramBuilder builder(std::move(name), collective, ranks, root, chunks);
  std::vector<Sum> sums;
  std::vector<Move> moves;
  for (std::uint32_t block = 0; block < chunks.size(); ++block) {
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (!ends_with(collective, ranks, root, to, block)) continue;
      const Slot dst = builder.output(to, block);
      if (reduces(collective)) {
        sums.push_back({.owner = to, .chunk = block, .dst = dst, .parts = inputs_of_all(builder, block)});
        continue;
      }
      for (std::uint32_t from = 0; from < ranks; ++from) {
        if (!starts_with(collective, ranks, root, from, block)) continue;
        moves.push_back({{from, builder.input(from, block)}, {to, dst}});
      }
    }
  }
  sum_all(builder, sums, association);
  move_all(builder, moves);
  return builder.finish();
}

Program in_two_shots(std::string name, std::uint32_t ranks, Association association) {
  ProgramBuilder builder(std::move(name), Collective::all_reduce, ranks, 0,
                         equal_chunks(Collective::all_reduce, ranks, ranks));
  std::vector<Sum> sums;
  std::vector<Move> moves;
  for (std::uint32_t owner = 0; owner < ranks; ++owner) {
    const Slot sum = builder.output(owner, owner);
    sums.push_back({.owner = owner, .chunk = owner, .dst = sum, .parts = inputs_of_all(builder, owner)});
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (to != owner) moves.push_back({{owner, sum}, {to, builder.output(to, owner)}});
    }
  }
  sum_all(builder, sums, association);
  move_all(builder, moves, 1);
  return builder.finish();
}

}  // namespace

Program direct(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  return in_one_shot("direct", collective, ranks, root, Association::at_once);
}

Program two_shot_all_reduce(std::uint32_t ranks) { return in_two_shots("two_shot", ranks, Association::at_once); }

Program pairwise(Collective collective, std::uint32_t ranks) {
  if (collective == Collective::all_reduce) return in_two_shots("pairwise", ranks, Association::pairwise);
  return in_one_shot("pairwise", collective, ranks, 0, Association::pairwise);
}

}  // namespace syntony

#include "core/program/algorithms/pat.hpp"

#include <bit>
#include <ranges>
#include <vector>

#include "core/program/moves/exchange.hpp"
#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

/// Block (rank - ahead) mod n arrives at `rank` from the rank `distance` before it.
struct Hop {
  std::uint32_t ahead = 0;  // distance of the receiver from the block's own rank
  std::uint32_t distance = 0;
};

/// One block's tree, in the order in which a rank receives; the same for all ranks. Hops of one distance are one step.
std::vector<std::vector<Hop>> steps(std::uint32_t ranks) {
  std::vector<std::vector<Hop>> found;
  std::vector<std::uint32_t> held{0};  // distances of a rank from the owners of the blocks it holds
  for (std::uint32_t distance = std::bit_ceil(ranks) / 2; distance > 0; distance /= 2) {
    auto& step = found.emplace_back();
    const std::size_t known = held.size();
    for (std::size_t i = 0; i < known; ++i) {
      const std::uint32_t ahead = held[i] + distance;
      if (ahead >= ranks) continue;
      step.push_back({ahead, distance});
      held.push_back(ahead);
    }
  }
  return found;
}

/// A scratch slot per rank and block, in the order in which blocks arrive at the rank: slot[rank][ahead].
std::vector<std::vector<Slot>> scratch_of_all(ProgramBuilder& builder, const std::vector<std::vector<Hop>>& steps) {
  const std::uint32_t ranks = builder.ranks();
  std::vector<std::vector<Slot>> slots(ranks, std::vector<Slot>(ranks));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    slots[rank][0] = builder.scratch(rank, rank);
    for (const auto& step : steps) {
      for (const Hop& hop : step) slots[rank][hop.ahead] = builder.scratch(rank, (rank + ranks - hop.ahead) % ranks);
    }
  }
  return slots;
}

void pat_gather(ProgramBuilder& builder) {
  const std::uint32_t ranks = builder.ranks();
  const auto order = steps(ranks);
  const auto slots = scratch_of_all(builder, order);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) builder.copy(rank, slots[rank][0], builder.input(rank, rank));
  for (const auto& step : order) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t from = (rank + ranks - step.front().distance) % ranks;
      std::vector<Handover> blocks;
      for (const Hop& hop : step) blocks.push_back({slots[from][hop.ahead - hop.distance], slots[rank][hop.ahead]});
      hand_over(builder, from, rank, blocks);
    }
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t ahead = 0; ahead < ranks; ++ahead) {
      const std::uint32_t block = (rank + ranks - ahead) % ranks;
      builder.copy(rank, builder.output(rank, block), ahead == 0 ? builder.input(rank, rank) : slots[rank][ahead]);
    }
  }
}

void sum_up(ProgramBuilder& builder) {
  const std::uint32_t ranks = builder.ranks();
  const auto order = steps(ranks);
  const auto slots = scratch_of_all(builder, order);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t ahead = 0; ahead < ranks; ++ahead) {
      builder.copy(rank, slots[rank][ahead], builder.input(rank, (rank + ranks - ahead) % ranks));
    }
  }
  for (const auto& step : order | std::views::reverse) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t to = (rank + ranks - step.front().distance) % ranks;
      std::vector<PartialSum> sums;
      for (const Hop& hop : step) {
        const Slot sum = slots[to][hop.ahead - hop.distance];
        sums.push_back({slots[rank][hop.ahead], sum, sum});
      }
      hand_over_sums(builder, rank, to, sums);
    }
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) builder.copy(rank, builder.output(rank, rank), slots[rank][0]);
}

}  // namespace

Program pat(Collective collective, std::uint32_t ranks) {
  ProgramBuilder builder("pat", collective, ranks, 0, equal_chunks(collective, ranks, 1));
  if (collective == Collective::all_gather) {
    pat_gather(builder);
  } else {
    sum_up(builder);
  }
  return builder.finish();
}

}  // namespace syntony

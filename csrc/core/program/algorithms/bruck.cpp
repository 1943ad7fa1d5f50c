#include "core/program/algorithms/bruck.hpp"

#include <algorithm>
#include <vector>

#include "core/program/moves/exchange.hpp"
#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

void bruck_gather(ProgramBuilder& builder) {
  const std::uint32_t ranks = builder.ranks();
  for (std::uint32_t distance = 1; distance < ranks; distance *= 2) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t from = (rank + distance) % ranks;
      std::vector<Handover> blocks;
      for (std::uint32_t ahead = 0; ahead < std::min(distance, ranks - distance); ++ahead) {
        const std::uint32_t block = (from + ahead) % ranks;
        blocks.push_back(
            {distance == 1 ? builder.input(from, block) : builder.output(from, block), builder.output(rank, block)});
      }
      hand_over(builder, from, rank, blocks);
    }
    if (distance == 1) copy_own(builder);  // from here on a rank's own block is adjacent to the others
  }
  if (ranks == 1) copy_own(builder);
}

void exchange(ProgramBuilder& builder) {
  const std::uint32_t ranks = builder.ranks();
  const auto chunk_of = [ranks](std::uint32_t from, std::uint32_t ahead) {
    return from * ranks + (from + ahead) % ranks;
  };
  // By rank and by the total distance a block must go: the slot of the block that is at that rank now. It has already
  // gone the bits of that distance below this step's.
  std::vector<std::vector<Slot>> here(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t ahead = 0; ahead < ranks; ++ahead) {
      here[rank].push_back(builder.input(rank, chunk_of(rank, ahead)));
    }
  }
  for (std::uint32_t distance = 1; distance < ranks; distance *= 2) {
    std::vector<std::vector<Slot>> next = here;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t to = (rank + distance) % ranks;
      std::vector<Handover> blocks;
      for (std::uint32_t ahead = distance; ahead < ranks; ++ahead) {
        if ((ahead & distance) == 0) continue;
        const std::uint32_t gone = ahead & (distance - 1);
        const std::uint32_t chunk = chunk_of((rank + ranks - gone) % ranks, ahead);
        const Slot packed = builder.scratch(rank, chunk);
        builder.copy(rank, packed, here[rank][ahead]);
        next[to][ahead] = builder.scratch(to, chunk);
        blocks.push_back({packed, next[to][ahead]});
      }
      hand_over(builder, rank, to, blocks);
    }
    here = std::move(next);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t ahead = 0; ahead < ranks; ++ahead) {
      const std::uint32_t from = (rank + ranks - ahead) % ranks;
      builder.copy(rank, builder.output(rank, chunk_of(from, ahead)), here[rank][ahead]);
    }
  }
}

}  // namespace

Program bruck(Collective collective, std::uint32_t ranks) {
  ProgramBuilder builder("bruck", collective, ranks, 0, equal_chunks(collective, ranks, 1));
  if (collective == Collective::all_gather) {
    bruck_gather(builder);
  } else {
    exchange(builder);
  }
  return builder.finish();
}

}  // namespace syntony

#include "core/one_host/shared_way.hpp"

namespace syntony {
namespace {

// Measured (2 and 4 ranks, 2 cores with 2 MiB of cache each; `python -m syntony.benchmarks runtime anatomy` shows the
// rates). From these sizes of a block on, reading the peers' buffers beats copies through the cache, also where peers
// have just written them: what only moves is spared a copy, what is added up the writing of what is shown.
constexpr std::size_t kMovedBytes = std::size_t{16} << 10U;
constexpr std::size_t kAddedBytes = std::size_t{128} << 10U;
constexpr std::size_t kAddedByTwo = std::size_t{64} << 10U;
// Two ranks read all they add as long as that stays in their caches (beyond, copies through the cache move no more
// lines between them); more ranks would read more than their shares.
constexpr std::size_t kWholeBytes = std::size_t{512} << 10U;
// Shares of a sum for all, just written, are read, too: no less than through copies, until those leave the cache.
constexpr std::size_t kAddedForAllBytes = std::size_t{8} << 20U;
// Bytes that all ranks together bring to a sum: beyond, to read only one's share of them pays.
constexpr std::size_t kOneShotBytes = std::size_t{128} << 10U;

SharedWay staged_way(Collective collective, std::uint32_t ranks, std::size_t bytes) {
  const bool sums_one_block = collective == Collective::all_reduce || collective == Collective::reduce;
  // Of two ranks, each would read as much, in more steps.
  const bool shares = sums_one_block && bytes * ranks > kOneShotBytes && ranks > 2;
  return shares ? SharedWay::two_shot : SharedWay::exchange;
}

}  // namespace

SharedWay shared_way(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable) {
  const bool sums = facts_of(collective).reduces;
  const bool by_two = sums && ranks == 2;
  if (readable && by_two && bytes >= kAddedByTwo && bytes <= kWholeBytes) return SharedWay::whole;
  const std::size_t least = collective == Collective::all_reduce ? kAddedForAllBytes : sums ? kAddedBytes : kMovedBytes;
  // `reduce` has no place where those who get nothing could leave their share of the sum.
  const bool refers = readable && collective != Collective::reduce && bytes >= least;
  return refers ? SharedWay::reference : staged_way(collective, ranks, bytes);
}

std::string_view name_of(SharedWay way) {
  switch (way) {
    case SharedWay::exchange:
      return "exchange";
    case SharedWay::two_shot:
      return "two-shot";
    case SharedWay::whole:
      return "whole";
    case SharedWay::reference:
      break;
  }
  return "reference";
}

}  // namespace syntony

#include "core/one_host/shared_way.hpp"

#include "core/kernels/vector_copy.hpp"

namespace syntony {
namespace {

// Measured (2 and 4 ranks, 2 cores with 2 MiB of cache each; `python -m syntony.benchmarks runtime choices`) with
// inputs written before each call: reading them from their writer's cache, and rewriting them after peers have read
// them, costs more than copies through the cache. From these block sizes on, which exceed such caches, saving the copy
// pays off. With copies by string instruction (2 cores, 1 MiB of cache each and 32 for both) it pays off much later:
// all_gather of 8 MiB, 2 ranks, 793 us from the peers' buffers and 298 through copies; 4 ranks, 2,557 and 1,143.
constexpr std::size_t kMovedBytes = std::size_t{1} << 20U;
constexpr std::size_t kMovedByStringBytes = std::size_t{8} << 20U;
constexpr std::size_t kAddedBytes = std::size_t{2} << 20U;
constexpr std::size_t kAddedForAllBytes = std::size_t{8} << 20U;
// Bytes that all ranks contribute to a sum, or each of two ranks: above this, reading only one's share pays off.
constexpr std::size_t kOneShotBytes = std::size_t{128} << 10U;
constexpr std::size_t kOneShotOfTwo = std::size_t{1} << 20U;

SharedWay staged_way(Collective collective, std::uint32_t ranks, std::size_t bytes) {
  const bool sums_one_block = collective == Collective::all_reduce || collective == Collective::reduce;
  // With two ranks, two-shot reads as much, in more steps; but it shows half.
  const bool few = ranks > 2 ? bytes * ranks <= kOneShotBytes : bytes <= kOneShotOfTwo;
  const bool shares = sums_one_block && !few;
  return shares ? SharedWay::two_shot : SharedWay::exchange;
}

}  // namespace

SharedWay shared_way(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable) {
  const bool sums = facts_of(collective).reduces;
  const std::size_t moved = copies_by_string() ? kMovedByStringBytes : kMovedBytes;
  const std::size_t least = collective == Collective::all_reduce ? kAddedForAllBytes : sums ? kAddedBytes : moved;
  // With `reduce`, ranks without a result have no buffer for their share of the sum.
  const bool refers = readable && collective != Collective::reduce && bytes >= least;
  return refers ? SharedWay::reference : staged_way(collective, ranks, bytes);
}

std::string_view name_of(SharedWay way) {
  switch (way) {
    case SharedWay::exchange:
      return "exchange";
    case SharedWay::two_shot:
      return "two-shot";
    case SharedWay::reference:
      break;
  }
  return "reference";
}

}  // namespace syntony

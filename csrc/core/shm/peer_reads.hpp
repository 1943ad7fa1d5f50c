// How a rank reads what a peer on its host has just written: in order, or several pages at a time.
//
// Which is faster depends on the processor's prefetchers, and on where the ranks' cores are (kernels/vector_copy.hpp).
// So every rank times its own copies and sums (faster_way.hpp); ranks need not agree, for results are the same.
// Where copies are the string instruction, several pages at a time have never been faster (Zen 4, all_gather of 1 MiB
// 25 and 28 us, 35 and 42 on cores that share no cache), so they are not tried.
#pragma once

#include <cstddef>
#include <span>

#include "core/kernels/kernels.hpp"
#include "core/kernels/vector_copy.hpp"
#include "core/shm/faster_by_size.hpp"
#include "core/sizes.hpp"

namespace syntony {

class PeerReads {
 public:
  /// memcpy's contract.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (copies_by_string()) return vector_copy(to, from, bytes);
    copies_(bytes,
            [&](FasterWay::Way way) { (way == FasterWay::Way::second ? paged_copy : vector_copy)(to, from, bytes); });
  }
  /// reduce()'s contract.
  void sum(DType dtype, ReduceOp op, std::byte* to, std::span<const std::byte* const> sources, std::size_t count) {
    sums_(count * size_of(dtype), [&](FasterWay::Way way) {
      (way == FasterWay::Way::second ? reduce_paged : reduce)(dtype, op, to, sources, count);
    });
  }

 private:
  static constexpr std::size_t kShortest = 16_KiB;  // of fewer pages, there are not several to be read at a time
  static constexpr double kMore = 1.05;             // than chance

  FasterBySize copies_{kMore, kShortest};
  FasterBySize sums_{kMore, kShortest};
};

}  // namespace syntony

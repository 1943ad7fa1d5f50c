// How a rank writes what its peers will read: through the caches, or past them.
//
// An ordinary store to a line that peers have read waits until their caches have given it up. A non-temporal one does
// not wait, but peers then read it from memory. Which is faster depends on the processor and on where the ranks' cores
// are, which changes within seconds if a hypervisor moves them. 64 KiB on two cores of an AMD EPYC (Zen 4), us to
// write, and for the peer to read:
//
//                                    through the caches      past them
//     cores that share a cache           2.3 + 1.5           4.2 + 3.1
//     cores that do not                 28.1 + 2.8           2.0 + 2.1
//
// So every rank times its own copies (faster_way.hpp). What peers read is the same, so ranks need not agree.
//
// What the writer gains, readers lose in part: the second way must be so much faster. Thrice made ranks of a Zen 4
// whose cores do not share a cache change their minds, since a copy through the caches that follows some past them
// finds fewer lines to take back: 128 KiB 14 to 30 us and 5 to 8 (all_gather of 1 MiB 96 instead of 55 us).
#pragma once

#include <cstddef>

#include "core/kernels/vector_copy.hpp"
#include "core/shm/faster_by_size.hpp"

namespace syntony {

class ShownCopy {
 public:
  /// memcpy's contract. A later release store publishes what was written.
  void operator()(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  static constexpr std::size_t kShortest = 2048;            // a store buffer holds less
  static constexpr double kByString = 2, kByRegisters = 3;  // times as fast

  FasterBySize ways_{copies_by_string() ? kByString : kByRegisters, kShortest};
};

}  // namespace syntony

// A copy of pieces that ranks of one host hand to each other.
//
// From a few KiB on, the C library's memcpy takes the processor's string instruction. On Intel's, its start, and its
// way of getting at lines that another core holds, cost a sixth of an all_gather of 64 KiB, and what it spares with
// large blocks, the reading of lines that will be overwritten whole, did not show up to 64 MiB (2 ranks, 2 cores):
// there, vector registers copy. On AMD's it is what counts: all_gather of 256 KiB 8.9 -> 6.6 us.
#pragma once

#include <cstddef>

namespace syntony {

/// Whether vector_copy() is the string instruction: on AMD's processors.
[[nodiscard]] bool copies_by_string();

/// memcpy's contract.
void vector_copy(std::byte* to, const std::byte* from, std::size_t bytes);

/// The same past the caches (non-temporal stores, where there are): an ordinary store reads its line before it writes
/// it, so of what will not stay in cache a third of the traffic is spared.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace syntony

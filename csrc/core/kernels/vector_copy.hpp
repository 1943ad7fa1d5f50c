// Copies of data that ranks of one host hand to each other.
//
// From a few KiB on, the C library's memcpy uses the processor's string instruction. On Intel's, its startup and the
// way it fetches lines held by another core cost a sixth of a 64 KiB all_gather, and its advantage for large blocks (it
// does not read lines that will be fully overwritten) did not show up to 64 MiB (2 ranks, 2 cores), so there we copy
// with vector registers. On AMD's the string instruction pays off: all_gather of 256 KiB 8.9 -> 6.6 us.
#pragma once

#include <cstddef>

namespace syntony {

/// Whether vector_copy() is the string instruction: on AMD's processors.
[[nodiscard]] bool copies_by_string();

/// Whether a line that one core has written belongs to the next core that reads it, so that the reader can write it at
/// once, while the one that wrote it must take it back first: on AMD's processors (migratory lines of MOESI).
[[nodiscard]] bool lines_migrate();

/// memcpy's contract.
void vector_copy(std::byte* to, const std::byte* from, std::size_t bytes);

/// The same, from several pages at a time. A core's prefetchers follow a few streams, each within its page: what
/// another core has just written comes from its cache sooner if it is read from several pages (two cores of an
/// Intel Xeon with AMX, 32, 64 and 128 KiB: 1.8 -> 1.6, 3.6 -> 2.7, 7.4 -> 5.4 us). What lies in the own cache does
/// not.
void paged_copy(std::byte* to, const std::byte* from, std::size_t bytes);

/// The same to where a peer has read before: its lines are taken back in several pages at a time (the same processor,
/// 64 and 128 KiB: 2.8 -> 2.4, 5.7 -> 4.5 us).
void paged_copy_to_peers(std::byte* to, const std::byte* from, std::size_t bytes);

/// The same bypassing the caches (non-temporal stores, if available). An ordinary store reads its line before writing
/// it, so for data that will not stay in cache this saves a third of the traffic.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace syntony

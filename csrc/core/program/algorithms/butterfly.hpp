// Butterflies: in step s every rank exchanges with one partner, so a sum over n ranks takes log2(n) hops.
//
//     step 0        step 1                 With 8 ranks and partners at distance 1, 2, 4 everybody has data of
//     0 <-> 1       0 <----> 2             two ranks, four, all. Two ways to use the wires:
//     2 <-> 3         1 <----> 3
//                                          whole    both send all they have summed: log2(n) hops, log2(n) times the
//                                                   bytes (recursive doubling); for few bytes
//                                          halves   each keeps and sums one half of what both hold; the way back
//                                                   returns the halves: 2 log2(n) hops, 2 (n-1)/n times the bytes,
//                                                   the minimum (Rabenseifner; the same with Swing's partners)
//
// recursive_doubling   partners at distance 1, 2, 4 ..; whole          Thakur, Rabenseifner, Gropp (IJHPCA 2005), 4.5
// rabenseifner         partners at distance n/2, n/4 .. 1; halves      the same paper, 4.5
// swing                partners at distance 1, 1, 3, 5, 11 .. to alternate sides; halves. On a ring or torus, messages
//                      travel fewer links than with powers of two      De Sensi et al. (NSDI 2024), 3
//
// If n is not a power of two and p is the largest one below it, ranks p .. n-1 first hand their data to ranks 0 ..
// n-p-1 and receive the result at the end: two more hops (the same paper of 2005, 4.5).
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// all_reduce.
[[nodiscard]] Program recursive_doubling(std::uint32_t ranks);
/// all_reduce.
[[nodiscard]] Program rabenseifner(std::uint32_t ranks);
/// all_reduce.
[[nodiscard]] Program swing(std::uint32_t ranks);

}  // namespace syntony

// What interpreter.cpp runs of collectives through switches.
#pragma once

#include <cstdint>

namespace syntony::cuda {

/// Random launches of 2 to 8 ranks, one after another: the sums, and nothing but the output, bit for bit.
void run_switched_jobs(std::uint64_t seed, int jobs);

}  // namespace syntony::cuda

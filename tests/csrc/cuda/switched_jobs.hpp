// The tests of collectives through switches, run by interpreter.cpp.
#pragma once

#include <cstdint>

namespace syntony::cuda {

/// Random launches of 2 to 8 ranks, one after another: checks, bit for bit, the sums and that only the output changes.
void run_switched_jobs(std::uint64_t seed, int jobs);

}  // namespace syntony::cuda

// What interpreter.cpp runs of the copy engine.
#pragma once

#include <cstdint>

namespace syntony::cuda {

/// Random copies of many tiles by one engine after another, into several destinations, at any offset: every byte, and
/// none beside them.
void run_bulk_copies(std::uint64_t seed, int jobs);

}  // namespace syntony::cuda

// The tests of the copy engine, run by interpreter.cpp.
#pragma once

#include <cstdint>

namespace syntony::cuda {

/// Random copies of many tiles by one engine after another, into several destinations, at any offset: checks every
/// byte, and that none beside them changes.
void run_bulk_copies(std::uint64_t seed, int jobs);

}  // namespace syntony::cuda

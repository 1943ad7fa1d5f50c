// The parameters of one launch of one rank, passed by value: kernel parameters, which a captured graph keeps as they
// are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/arena.hpp"
#include "cuda/device/kernel_form.hpp"

namespace syntony::cuda {

struct Launch {
  KernelTables tables;
  ArenaShape shape;
  std::uint32_t rank = 0;
  std::uint32_t number = 0;              // of the rank's launches, from 1; for reports
  std::byte* const* arenas = nullptr;    // by rank, as mapped on this rank
  const std::uint32_t* abort = nullptr;  // host memory: nonzero makes all lanes stop where they are
  Trouble* trouble = nullptr;            // host memory
  bool bulk = false;                     // copies use the copy engine (bulk.hpp)
  std::uint64_t timeout = 0;             // nanoseconds that a launch may take; 0: any
  std::byte* bases[kMostBases];          // indexed by KernelSlot::base
};
static_assert(sizeof(Launch) <= 4096, "a kernel takes 4 KiB of parameters");

}  // namespace syntony::cuda

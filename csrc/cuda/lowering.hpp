// Lowers a rank's part of a Program to tables for the interpreter (device/kernel_form.hpp), with sizes filled in.
//
// Blocks. A lane is run by one thread block; if there are more lanes than blocks that fit on the GPU, a block runs
// several (lane l goes to block l % blocks).
//
// Instances. A Program with few lanes cannot fill a GPU. So it may run several times at once, each instance on its
// share of every chunk, in its own lanes and channels: a Program that is correct for any size is correct for each
// share.
//
// Handshake. The buffers of a launch are the caller's, and a peer's may not be ready when this rank's lanes begin. So a
// rank that lets others access its memory signals when it has begun, and does not end before they have finished. This
// is a lane of signals and waits that the lowering adds, on two channels of its own.
//
//      owner      begun ->                                   -> waits: finished
//      toucher             waits: begun, touches .. , finished ->
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/program/prepared_program.hpp"
#include "cuda/device/arena.hpp"
#include "cuda/device/kernel_form.hpp"

namespace syntony::cuda {

/// A pointer that a launch must supply: the memory of `block` that `rank` has as input or output, or its scratch.
struct Base {
  std::uint32_t rank = 0;
  Space space = Space::input;
  std::uint32_t block = 0;
  friend auto operator<=>(const Base&, const Base&) = default;
};

struct LoweringOptions {
  Protocol protocol = Protocol::simple;
  std::uint32_t blocks = 1;     // thread blocks of this rank that fit on its GPU at once
  bool bulk = false;            // copies by Hopper's copy engine (device/bulk.hpp); off until measured to be faster
  std::uint32_t instances = 0;  // 0: as many as fill `blocks` with pieces that are worth it; else the same at all ranks
};

struct KernelForm {
  std::vector<KernelLane> lanes;
  std::vector<KernelInstruction> instructions;
  std::vector<KernelEnd> ends;
  std::vector<KernelSlot> slots;
  std::vector<KernelDependency> dependencies;
  std::vector<Base> bases;  // indexed by KernelSlot::base
  std::uint32_t slices = 0;
  std::uint32_t blocks = 0;
  std::uint32_t instances = 1;
  std::size_t scratch_bytes = 0;  // of this rank; aligned to 128 bytes
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  Protocol protocol = Protocol::simple;
  bool bulk = false;
  bool touches_peers = false;  // launches need the peers' pointers

  [[nodiscard]] KernelTables tables() const;
};

/// `elements` of each block, as in Block (all_to_all: those of other pairs matter only to one-sided Programs). Throws
/// std::invalid_argument if the Program needs what the arena or a launch lacks: FIFOs deep enough, channels, room for
/// one element per message, pointers, lanes; or for an operator that is not defined here.
[[nodiscard]] KernelForm lower(const PreparedProgram& program, std::uint32_t rank, DType dtype, ReduceOp op,
                               std::span<const std::size_t> elements, const ArenaShape& shape,
                               const LoweringOptions& options);

/// The scratch_bytes that `lower` would compute for any rank, without lowering everything.
[[nodiscard]] std::size_t scratch_bytes(const PreparedProgram& program, std::uint32_t rank, DType dtype,
                                        std::span<const std::size_t> elements);

}  // namespace syntony::cuda

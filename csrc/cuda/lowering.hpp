// A rank's part of a Program as tables for the interpreter (device/kernel_form.hpp), with sizes put in.
//
// Blocks. A lane is the work of one thread block; where there are more lanes than blocks that can be on the GPU at
// once, blocks take several (lane l goes to block l % blocks).
//
// Instances. A Program with few lanes cannot fill a GPU. So it may run several times at once, each instance on its
// share of every chunk, in its own lanes and channels: a Program that is right for any size is right for each share.
//
// Handshake. The buffers of a launch are the caller's, and a peer's may not be ready when this rank's lanes begin. So a
// rank that lets others touch its memory says when it has begun, and does not end before they have finished with it.
// This is a lane of signals and waits that the lowering adds, on two channels of its own.
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

/// A pointer that a launch must bring: the memory of `block` that `rank` has as input or output, or its scratch.
struct Base {
  std::uint32_t rank = 0;
  Space space = Space::input;
  std::uint32_t block = 0;
  friend auto operator<=>(const Base&, const Base&) = default;
};

struct LoweringOptions {
  Protocol protocol = Protocol::simple;
  std::uint32_t blocks = 1;     // thread blocks of this rank that can be on its GPU at once
  bool bulk = false;            // copies by Hopper's copy engine (device/bulk.hpp); off until measured to be faster
  std::uint32_t instances = 0;  // 0: as many as fill `blocks` with pieces that are worth it; else the same at all ranks
};

struct KernelForm {
  std::vector<KernelLane> lanes;
  std::vector<KernelInstruction> instructions;
  std::vector<KernelEnd> ends;
  std::vector<KernelSlot> slots;
  std::vector<KernelDependency> dependencies;
  std::vector<Base> bases;  // KernelSlot::base counts these
  std::uint32_t slices = 0;
  std::uint32_t blocks = 0;
  std::uint32_t instances = 1;
  std::size_t scratch_bytes = 0;  // of this rank; at a 128-byte boundary
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  Protocol protocol = Protocol::simple;
  bool bulk = false;
  bool touches_peers = false;  // launches need the peers' pointers

  [[nodiscard]] KernelTables tables() const;
};

/// `elements` of each block, as in Block (all_to_all: those of other pairs matter to one-sided Programs only).
/// Throws std::invalid_argument, in a sentence, when the Program needs what the arena or a launch does not have: FIFOs
/// deep enough, channels, room for one element per message, pointers, lanes; or an operator that has no meaning here.
[[nodiscard]] KernelForm lower(const PreparedProgram& program, std::uint32_t rank, DType dtype, ReduceOp op,
                               std::span<const std::size_t> elements, const ArenaShape& shape,
                               const LoweringOptions& options);

/// What `lower` would say of scratch at any rank, without lowering all of it.
[[nodiscard]] std::size_t scratch_bytes(const PreparedProgram& program, std::uint32_t rank, DType dtype,
                                        std::span<const std::size_t> elements);

}  // namespace syntony::cuda

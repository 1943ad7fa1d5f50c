// A rank's part of a Program as a GPU reads it: flat tables of plain numbers, with everything known before launch
// precomputed (lowering.hpp makes it, interpreter.hpp runs it).
//
// All data combination has one form: destinations <- source + source + ..,
//
//      copy                    slot                      -> slot
//      reduce                  slot, slot ..             -> slot
//      send                    slot                      -> message
//      recv_reduce_copy_send   message, slot             -> slot, message
//      peer_read               peer's slot               -> slot
//
// so consecutive ones in a lane can be merged: a `peer_read` into scratch that a reduce consumes becomes a source of
// that reduce; a `peer_write` of its result becomes one more destination.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/dtype.hpp"

namespace syntony::cuda {

inline constexpr std::uint32_t kNone = ~0U;

/// How messages travel.
///   simple    a slot of bytes, then a step counter: the most bytes per second
///   ll        8-byte words of 4 data and 4 flag bytes: no counter to wait for, half the bandwidth
///   ll128     128-byte lines of 120 data and 8 flag bytes. Sound only where the hardware keeps a warp's 128-byte store
///             together: within a GPU and over NVLink, not over PCIe
enum class Protocol : std::uint8_t { simple, ll, ll128 };
inline constexpr std::uint32_t kProtocols = 3;

/// A source or destination: a slot, or the incoming or outgoing message.
struct KernelEnd {
  static constexpr std::uint32_t kMessage = ~0U;
  std::uint32_t slot = kMessage;
};

/// A slot: `bytes` at an offset from one of the launch's bases; slice s is its bytes [s * slice, (s + 1) * slice).
struct KernelSlot {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slice = 1;
  std::uint32_t base = 0;
};

struct KernelInstruction {
  std::uint32_t first_end = 0;  // in ends: the sources, then the destinations
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint32_t shape = 0;                        // the slot whose slice determines the number of bytes
  std::uint32_t count = 1;                        // consecutive slots at each end, and pieces of the message
  std::uint32_t receives = kNone, sends = kNone;  // fifo (arena.hpp)
  std::uint32_t first_dependency = 0, dependencies = 0;
  std::uint32_t first_slice = 0, end_slice = ~0U;  // does nothing in other slices
  std::uint16_t skew = 0;
  bool empty_message = false;  // a signal or a wait
  bool observed = false;       // another lane depends on it
  std::uint16_t origin = 0;    // instruction of the Program's lane, for reports
};

/// A slice is done when its lane's position has passed (slice + skew) * length + instruction.
struct KernelDependency {
  std::uint32_t lane = 0;
  std::uint32_t instruction = 0;
  std::uint32_t length = 0;
  std::uint32_t skew = 0;
};

struct KernelLane {
  std::uint32_t first = 0;   // instruction
  std::uint32_t length = 0;  // number of instructions
  std::uint32_t origin = 0;  // lane of the Program, for reports
};

/// The tables, in host or device memory.
struct KernelTables {
  const KernelLane* lanes = nullptr;
  const KernelInstruction* instructions = nullptr;
  const KernelEnd* ends = nullptr;
  const KernelSlot* slots = nullptr;
  const KernelDependency* dependencies = nullptr;
  std::uint32_t lane_count = 0;
  std::uint32_t slices = 0;
  std::uint32_t blocks = 0;  // lane l is run by block l % blocks
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  Protocol protocol = Protocol::simple;
};

inline constexpr std::uint32_t kMostBases = 448;  // pointers in a launch: all fits a kernel's 4 KiB of parameters
inline constexpr std::uint32_t kMostEnds = 128;   // sources and destinations of one instruction
inline constexpr std::uint32_t kMostLanesOfABlock = 64;  // whose state fits a block's shared memory
inline constexpr std::uint32_t kMostLanes = 8192;        // of a rank

}  // namespace syntony::cuda

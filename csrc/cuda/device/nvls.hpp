// Collectives using the NVLink switches: all ranks' memories behind one address ("multicast"), at which a load returns
// the sum over all of them and a store reaches every one.
//
//      rank 0   rank 1   rank 2          reduce(x)   the sum of what is at x on all ranks, computed in the switch
//         \       |       /              store(x)    one store on the wire, copied in the switch
//           [  switch  ]
//
// User buffers are not multicast memory, so slices go through staging slots that are. Every thread block processes its
// own slices and has two slots, to fill one while the other is being processed:
//
//                     fill                    (filled)   work                                        (done)
//   all_reduce        copy in                            reduce my part, store it (summed) copy out
//   reduce_scatter    copy in, a part for each           reduce my part into the output
//   all_gather        store my part                      copy out, a part of each
//
// Each of these crosses a wire once per byte: the p - 1 operands of a sum meet in the switch, like the switches of a
// Topology that reduce and multicast.
//
// Flags: per block, slot and rank, one word of each kind in every rank's memory, written only by that rank through the
// multicast address: the number of the slot's use. They only grow, over all launches, so nothing is reset and a late
// rank can be named. A slot is refilled once all ranks are done with its last use, because the next collective may be
// another one, in which others write where this rank still copies out.
//
// Multicast and ordinary addresses of the same memory are different paths to it; fence() is needed wherever one follows
// the other.
//
// The code is generic over a Switch: CudaSwitch, or a loop over the ranks of a test.
//   reduce(kind, offset)     16 bytes, summed over all ranks
//   store(offset, vector)    16 bytes, at every rank
//   tell(offset, value)      a word at every rank, after everything before it
//   fence()
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/dtype.hpp"
#include "cuda/device/arena.hpp"
#include "cuda/device/combine.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

enum class NvlsCollective : std::uint8_t { all_reduce, all_gather, reduce_scatter };

/// What a switch can compute, named like the instructions. Missing: products, fp8, min and max of floats.
enum class SwitchKind : std::uint8_t {
  none,
  add_f32,
  add_f64,
  add_f16,
  add_bf16,
  add_u32,
  add_u64,
  min_s32,
  min_u32,
  min_s64,
  min_u64,
  max_s32,
  max_u32,
  max_s64,
  max_u64,
  and_b64,
  or_b64,
  xor_b64
};

/// `none` if no switch has it. Sums of 16-bit floats are accumulated in float32 and rounded once.
[[nodiscard]] SYNTONY_BOTH SwitchKind switch_kind(DType dtype, ReduceOp op) {
  if (op == ReduceOp::sum) {
    switch (dtype) {
      case DType::float32:
        return SwitchKind::add_f32;
      case DType::float64:
        return SwitchKind::add_f64;
      case DType::float16:
        return SwitchKind::add_f16;
      case DType::bfloat16:
        return SwitchKind::add_bf16;
      case DType::int32:
      case DType::uint32:
        return SwitchKind::add_u32;
      case DType::int64:
      case DType::uint64:
        return SwitchKind::add_u64;
      default:
        return SwitchKind::none;
    }
  }
  const bool low = op == ReduceOp::min;
  if (low || op == ReduceOp::max) {
    switch (dtype) {
      case DType::int32:
        return low ? SwitchKind::min_s32 : SwitchKind::max_s32;
      case DType::uint32:
        return low ? SwitchKind::min_u32 : SwitchKind::max_u32;
      case DType::int64:
        return low ? SwitchKind::min_s64 : SwitchKind::max_s64;
      case DType::uint64:
        return low ? SwitchKind::min_u64 : SwitchKind::max_u64;
      default:
        return SwitchKind::none;
    }
  }
  if (dtype > DType::int64) return SwitchKind::none;  // integers come first
  switch (op) {
    case ReduceOp::band:
      return SwitchKind::and_b64;
    case ReduceOp::bor:
      return SwitchKind::or_b64;
    case ReduceOp::bxor:
      return SwitchKind::xor_b64;
    default:
      return SwitchKind::none;
  }
}

/// Must be equal on all ranks of a group.
struct NvlsShape {
  static constexpr std::uint32_t kSlots = 2;
  std::uint32_t ranks = 1;
  std::uint32_t blocks = 16;
  std::uint32_t slot_bytes = 128 << 10;  // a multiple of 128
};

struct NvlsFlags {
  enum Kind : std::uint32_t { filled, summed, done };
};
inline constexpr std::uint64_t kFlags = 3;  // kinds of them
inline constexpr std::uint64_t kNvlsTroubleBytes = 128;

/// Where a flag is; `uses` counts a slot's uses and follows all flags, for this rank only.
[[nodiscard]] SYNTONY_BOTH std::uint64_t nvls_flag(const NvlsShape& shape, std::uint32_t block, std::uint32_t slot,
                                                   NvlsFlags::Kind kind, std::uint32_t rank) {
  return kNvlsTroubleBytes +
         (((block * std::uint64_t{NvlsShape::kSlots} + slot) * kFlags + kind) * shape.ranks + rank) *
             sizeof(std::uint64_t);
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t nvls_uses(const NvlsShape& shape, std::uint32_t block, std::uint32_t slot) {
  return nvls_flag(shape, shape.blocks, 0, NvlsFlags::filled, 0) +
         (block * std::uint64_t{NvlsShape::kSlots} + slot) * sizeof(std::uint64_t);
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t nvls_staging(const NvlsShape& shape, std::uint32_t block, std::uint32_t slot) {
  const std::uint64_t begin = (nvls_uses(shape, shape.blocks, 0) + kLineBytes - 1) / kLineBytes * kLineBytes;
  return begin + (block * std::uint64_t{NvlsShape::kSlots} + slot) * shape.slot_bytes;
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t nvls_bytes(const NvlsShape& shape) {
  return nvls_staging(shape, shape.blocks, 0);
}
/// Bytes per slice of one block of the collective: all_reduce has one block, the others one per rank in a slot.
[[nodiscard]] SYNTONY_BOTH std::uint64_t nvls_piece(const NvlsShape& shape, NvlsCollective collective) {
  return collective == NvlsCollective::all_reduce ? shape.slot_bytes
                                                  : shape.slot_bytes / shape.ranks / sizeof(Vector) * sizeof(Vector);
}

struct NvlsLaunch {
  NvlsShape shape;
  NvlsCollective collective = NvlsCollective::all_reduce;
  SwitchKind kind = SwitchKind::none;
  std::uint32_t rank = 0;
  std::byte* own = nullptr;  // this rank's memory behind the multicast address
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t bytes = 0;               // of one block of the collective
  const std::uint32_t* abort = nullptr;  // host memory: not zero means stop
  Trouble* trouble = nullptr;            // host memory; `lane` is the thread block, `instruction` the kind of flag
  std::uint64_t timeout = 0;             // nanoseconds; 0: any
};

/// State shared by the threads of a block.
struct NvlsState {
  std::uint64_t use = 0;
  bool stop = false;
};

template <class Machine, class Switch>
class Nvls {
 public:
  SYNTONY_DEVICE Nvls(const Machine& machine, const Switch& all, const NvlsLaunch& launch, std::uint32_t block,
                      NvlsState& shared)
      : machine_(machine), all_(all), launch_(launch), shape_(launch.shape), shared_(shared), block_(block) {}

  SYNTONY_DEVICE void run() {
    piece_ = nvls_piece(shape_, launch_.collective);
    const std::uint64_t slices = (launch_.bytes + piece_ - 1) / piece_;
    if (leads()) {
      started_ = machine_.nanoseconds();
      shared_.stop = machine_.acquire(trouble_word()) != 0;
    }
    machine_.sync();
    if (shared_.stop) return;
    std::uint32_t round = 0;
    if (block_ < slices && !fill(block_, round)) return;
    for (std::uint64_t slice = block_; slice < slices; slice += shape_.blocks, ++round) {
      if (slice + shape_.blocks < slices && !fill(slice + shape_.blocks, round + 1)) return;
      if (!finish(slice, round)) return;
    }
  }

 private:
  [[nodiscard]] SYNTONY_DEVICE bool leads() const { return machine_.thread() == 0; }
  [[nodiscard]] SYNTONY_DEVICE static std::uint32_t slot_of(std::uint32_t round) { return round % NvlsShape::kSlots; }
  [[nodiscard]] SYNTONY_DEVICE std::uint64_t* word(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(launch_.own + offset);
  }
  [[nodiscard]] SYNTONY_DEVICE std::uint64_t* trouble_word() const { return word(0); }
  [[nodiscard]] SYNTONY_DEVICE std::uint64_t bytes_of(std::uint64_t slice) const {
    const std::uint64_t left = launch_.bytes - slice * piece_;
    return left < piece_ ? left : piece_;
  }
  [[nodiscard]] SYNTONY_DEVICE static std::uint64_t vectors_of(std::uint64_t bytes) {
    return (bytes + sizeof(Vector) - 1) / sizeof(Vector);
  }

  // ---- the two halves of a slice: false if this block gives up -------------------------------------------------

  SYNTONY_DEVICE bool fill(std::uint64_t slice, std::uint32_t round) {
    const std::uint32_t slot = slot_of(round);
    const std::uint64_t use = next_use(slot);
    if (!wait_for_all(slot, NvlsFlags::done, use - 1, slice)) return false;
    const std::uint64_t staging = nvls_staging(shape_, block_, slot), bytes = bytes_of(slice);
    switch (launch_.collective) {
      case NvlsCollective::all_reduce:
        copy_bytes_of_block(launch_.own + staging, launch_.input + slice * piece_, bytes);
        break;
      case NvlsCollective::reduce_scatter:
        for (std::uint32_t part = 0; part < shape_.ranks; ++part) {
          copy_bytes_of_block(launch_.own + staging + part * piece_,
                              launch_.input + part * launch_.bytes + slice * piece_, bytes);
        }
        break;
      case NvlsCollective::all_gather:
        store_everywhere(staging + launch_.rank * piece_, launch_.input + slice * piece_, bytes);
        break;
    }
    tell_all(slot, NvlsFlags::filled, use);
    return true;
  }

  SYNTONY_DEVICE bool finish(std::uint64_t slice, std::uint32_t round) {
    const std::uint32_t slot = slot_of(round);
    const std::uint64_t use = next_use(slot);
    if (!wait_for_all(slot, NvlsFlags::filled, use, slice)) return false;
    const std::uint64_t staging = nvls_staging(shape_, block_, slot), bytes = bytes_of(slice);
    switch (launch_.collective) {
      case NvlsCollective::all_reduce: {
        reduce_my_part(staging, vectors_of(bytes));
        tell_all(slot, NvlsFlags::summed, use);
        if (!wait_for_all(slot, NvlsFlags::summed, use, slice)) return false;
        copy_bytes_of_block(launch_.output + slice * piece_, launch_.own + staging, bytes);
        tell_all(slot, NvlsFlags::done, use);
        break;
      }
      case NvlsCollective::reduce_scatter:
        reduce_into(launch_.output + slice * piece_, staging + launch_.rank * piece_, bytes);
        tell_all(slot, NvlsFlags::done, use);
        break;
      case NvlsCollective::all_gather:
        for (std::uint32_t part = 0; part < shape_.ranks; ++part) {
          copy_bytes_of_block(launch_.output + part * launch_.bytes + slice * piece_,
                              launch_.own + staging + part * piece_, bytes);
        }
        tell_all(slot, NvlsFlags::done, use);
        break;
    }
    machine_.sync();
    if (leads()) *word(nvls_uses(shape_, block_, slot)) = use;
    return true;
  }

  // ---- flags ------------------------------------------------------------------------------------------------------

  /// The number of the current or next use of a slot, broadcast by the leader to all threads.
  SYNTONY_DEVICE std::uint64_t next_use(std::uint32_t slot) {
    machine_.sync();
    if (leads()) shared_.use = *word(nvls_uses(shape_, block_, slot)) + 1;
    machine_.sync();
    return shared_.use;
  }

  SYNTONY_DEVICE void tell_all(std::uint32_t slot, NvlsFlags::Kind kind, std::uint64_t use) {
    all_.fence();
    machine_.sync();
    if (leads()) all_.tell(nvls_flag(shape_, block_, slot, kind, launch_.rank), use);
  }

  SYNTONY_DEVICE bool wait_for_all(std::uint32_t slot, NvlsFlags::Kind kind, std::uint64_t use, std::uint64_t slice) {
    if (leads()) {
      for (std::uint32_t rank = 0; rank < shape_.ranks && !shared_.stop; ++rank) {
        std::uint64_t* const flag = word(nvls_flag(shape_, block_, slot, kind, rank));
        for (std::uint32_t looks = 0; machine_.acquire(flag) < use && !shared_.stop; ++looks) {
          shared_.stop = gives_up(looks, kind, slice, rank);
          machine_.pause(looks);
        }
      }
    }
    machine_.sync();
    all_.fence();
    return !shared_.stop;
  }

  SYNTONY_DEVICE bool gives_up(std::uint32_t looks, NvlsFlags::Kind kind, std::uint64_t slice, std::uint32_t rank) {
    constexpr std::uint32_t kLooks = 256;
    if (looks % kLooks != kLooks - 1) return false;
    if (machine_.acquire(trouble_word()) != 0) return true;
    const bool aborted = machine_.told(launch_.abort) != 0;
    const bool late = launch_.timeout != 0 && machine_.nanoseconds() - started_ > launch_.timeout;
    if (!aborted && !late) return false;
    if (machine_.add(trouble_word(), 1) == 0) {
      Trouble trouble;
      trouble.kind = aborted ? Trouble::aborted : Trouble::timed_out;
      trouble.lane = block_;
      trouble.instruction = kind;
      trouble.slice = static_cast<std::uint32_t>(slice);
      trouble.peer = rank;
      *launch_.trouble = trouble;
    }
    return true;
  }

  // ---- all threads ------------------------------------------------------------------------------------------------

  SYNTONY_DEVICE void copy_bytes_of_block(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    copy(machine_, KnownEnds<1, 1>{{const_cast<std::byte*>(from), to}, bytes});
  }

  SYNTONY_DEVICE void store_everywhere(std::uint64_t at, const std::byte* from, std::uint64_t bytes) {
    for (std::uint64_t v = machine_.thread(); v < vectors_of(bytes); v += machine_.threads()) {
      const std::uint64_t first = v * sizeof(Vector), left = bytes - first;
      all_.store(at + first, load_vector(from + first, left));
    }
  }

  /// Divides the vectors of a slice among the ranks, so that each is summed once and is equal everywhere.
  SYNTONY_DEVICE void reduce_my_part(std::uint64_t at, std::uint64_t vectors) {
    const std::uint64_t end = vectors * (launch_.rank + 1) / shape_.ranks;
    for (std::uint64_t v = vectors * launch_.rank / shape_.ranks + machine_.thread(); v < end;
         v += machine_.threads()) {
      all_.store(at + v * sizeof(Vector), all_.reduce(launch_.kind, at + v * sizeof(Vector)));
    }
  }

  SYNTONY_DEVICE void reduce_into(std::byte* to, std::uint64_t at, std::uint64_t bytes) {
    for (std::uint64_t v = machine_.thread(); v < vectors_of(bytes); v += machine_.threads()) {
      const std::uint64_t first = v * sizeof(Vector), left = bytes - first;
      const Vector sum = all_.reduce(launch_.kind, at + first);
      store_vector(to + first, sum, left);
    }
  }

  /// Up to 16 bytes from any address, zero-padded.
  SYNTONY_DEVICE static Vector load_vector(const std::byte* from, std::uint64_t bytes) {
    if (bytes >= sizeof(Vector) && reinterpret_cast<std::uintptr_t>(from) % sizeof(Vector) == 0) {
      return Machine::load(from);
    }
    Vector vector{};
    for (std::uint32_t i = 0; i < sizeof(Vector) && i < bytes; ++i) {
      vector.words[i / 8] |= static_cast<std::uint64_t>(from[i]) << (i % 8 * 8);
    }
    return vector;
  }
  SYNTONY_DEVICE static void store_vector(std::byte* to, const Vector& vector, std::uint64_t bytes) {
    if (bytes >= sizeof(Vector) && reinterpret_cast<std::uintptr_t>(to) % sizeof(Vector) == 0) {
      return Machine::store(to, vector);
    }
    for (std::uint32_t i = 0; i < sizeof(Vector) && i < bytes; ++i) {
      to[i] = static_cast<std::byte>(vector.words[i / 8] >> (i % 8 * 8));
    }
  }

  const Machine& machine_;
  const Switch& all_;
  const NvlsLaunch& launch_;
  const NvlsShape& shape_;
  NvlsState& shared_;
  const std::uint32_t block_;
  std::uint64_t piece_ = 1;
  std::uint64_t started_ = 0;  // used by the leader
};

}  // namespace syntony::cuda

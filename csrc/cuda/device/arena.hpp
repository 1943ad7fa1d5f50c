// A rank's memory that its peers write: FIFOs and flags. The layout follows from the ArenaShape alone, so all ranks of
// a group know each other's arenas.
//
//     [ Control | Fifo records | progress of lanes | slots of the FIFOs: simple, ll, ll128 ]
//
// A FIFO is identified by (peer, channel, protocol), and both its ends keep a record of it in their own arena:
//
//     sender's arena                                  receiver's arena
//       sent    how many it has put in                  received  how many it has taken out
//       head    written by the receiver: `received`     tail      written by the sender: `sent`     (simple, signals)
//                                                       slots     written by the sender: bytes, or lines with flags
//
// Each word has one writer. Counters only grow, over all launches of the group's life, and live here instead of in the
// launch, so a captured graph can be replayed, and a rank may be one launch ahead of its peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/kernel_form.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

/// Must be equal on all ranks of a group.
struct ArenaShape {
  std::uint32_t ranks = 1;
  std::uint32_t channels = 16;           // per pair of ranks, instances of a Program included
  std::uint32_t depth = 4;               // messages in a FIFO
  std::uint32_t slot_bytes = 256 << 10;  // of a simple message, a multiple of 128
  std::uint32_t line_bytes = 32 << 10;   // of an ll or ll128 message on the wire, a multiple of 128
  friend bool operator==(const ArenaShape&, const ArenaShape&) = default;
};

/// Why a rank's lanes stopped early. Written once, by the first block that gave up.
struct Trouble {
  enum Kind : std::uint32_t { none, aborted, timed_out };
  std::uint32_t kind = none;
  std::uint32_t launch = 0;       // Launch::number
  std::uint32_t lane = 0;         // of the Program,
  std::uint32_t instruction = 0;  // of that lane
  std::uint32_t slice = 0;
  std::uint32_t peer = kNone;  // whom it waited for; kNone if it was a lane of this rank
};

struct Control {
  std::uint64_t finished = 0;  // blocks that have left this launch
  std::uint64_t trouble = 0;   // blocks that ever gave up: a rank in trouble runs nothing more
};

struct alignas(64) FifoRecord {
  std::uint64_t tail = 0;
  std::uint64_t head = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

inline constexpr std::uint64_t kControlBytes = 128;
inline constexpr std::uint32_t kLineBytes = 128;

[[nodiscard]] SYNTONY_BOTH std::uint32_t fifo_index(const ArenaShape& shape, std::uint32_t peer, std::uint32_t channel,
                                                    Protocol protocol) {
  return (static_cast<std::uint32_t>(protocol) * shape.ranks + peer) * shape.channels + channel;
}
[[nodiscard]] SYNTONY_BOTH std::uint32_t fifo_peer(const ArenaShape& shape, std::uint32_t fifo) {
  return fifo / shape.channels % shape.ranks;
}
[[nodiscard]] SYNTONY_BOTH Protocol fifo_protocol(const ArenaShape& shape, std::uint32_t fifo) {
  return static_cast<Protocol>(fifo / shape.channels / shape.ranks);
}
/// The peer's index of the FIFO that `self` calls `fifo`.
[[nodiscard]] SYNTONY_BOTH std::uint32_t fifo_at_peer(const ArenaShape& shape, std::uint32_t fifo, std::uint32_t self) {
  return fifo_index(shape, self, fifo % shape.channels, fifo_protocol(shape, fifo));
}

[[nodiscard]] SYNTONY_BOTH std::uint64_t fifos_offset() { return kControlBytes; }
[[nodiscard]] SYNTONY_BOTH std::uint64_t progress_offset(const ArenaShape& shape) {
  return kControlBytes + sizeof(FifoRecord) * kProtocols * shape.ranks * shape.channels;
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t slots_offset(const ArenaShape& shape) {
  return (progress_offset(shape) + sizeof(std::uint64_t) * kMostLanes + kLineBytes - 1) / kLineBytes * kLineBytes;
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t slot_stride(const ArenaShape& shape, Protocol protocol) {
  return protocol == Protocol::simple ? shape.slot_bytes : shape.line_bytes;
}
/// The offset of the first slot of a FIFO.
[[nodiscard]] SYNTONY_BOTH std::uint64_t slot_offset(const ArenaShape& shape, std::uint32_t fifo) {
  const std::uint64_t of_each_protocol = std::uint64_t{shape.ranks} * shape.channels;
  const Protocol protocol = fifo_protocol(shape, fifo);
  const std::uint64_t simple = of_each_protocol * shape.depth * shape.slot_bytes;
  const std::uint64_t lines = of_each_protocol * shape.depth * shape.line_bytes;
  const std::uint64_t before = protocol == Protocol::simple ? 0 : protocol == Protocol::ll ? simple : simple + lines;
  return slots_offset(shape) + before + fifo % of_each_protocol * shape.depth * slot_stride(shape, protocol);
}
[[nodiscard]] SYNTONY_BOTH std::uint64_t arena_bytes(const ArenaShape& shape) {
  return slots_offset(shape) +
         std::uint64_t{shape.ranks} * shape.channels * shape.depth * (shape.slot_bytes + 2ULL * shape.line_bytes);
}
/// Bytes of data that a message can carry.
[[nodiscard]] SYNTONY_BOTH std::uint64_t payload_bytes(const ArenaShape& shape, Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return shape.line_bytes / 2;
    case Protocol::ll128:
      return shape.line_bytes / kLineBytes * (kLineBytes - 8);
    default:
      return shape.slot_bytes;
  }
}
/// Where the next piece of a message begins, in bytes of data, after one of `bytes`; both ends agree.
[[nodiscard]] SYNTONY_BOTH std::uint64_t piece_stride(Protocol protocol, std::uint64_t bytes) {
  const std::uint64_t whole = protocol == Protocol::ll128 ? kLineBytes - 8 : protocol == Protocol::ll ? 8 : 16;
  return (bytes + whole - 1) / whole * whole;
}

}  // namespace syntony::cuda

// The bytes between a worker and its aggregator, and between an aggregator and the one above it. Little-endian, as in
// memory. A TCP connection handles membership and termination; the numbers go by UDP, and may be lost:
//
//   worker                                     aggregator
//                                        ◀──   Challenge{nonce}              TCP, to whoever connects
//   Hello{token, rank, ..; proof; above} ──▶
//                                        ◀──   welcome{window, slot bytes}   when all workers of the job have come
//   part 0, 1, .. window-1               ──▶                                 UDP, to the port of the same number
//                                        ◀──   sum 0, 1, ..                  when every worker's part has come
//   part window, window+1, ..            ──▶                                 when sums came, as fast as the wires allow
//   question s                           ──▶                                 no sum of s has come: where is it?
//                                        ◀──   sum s, held s, or wanted s    or: others' parts are not here, or: yours
//   late{sequence}                       ──▶                                 TCP: my time for it is over: who is it?
//   leave                                ──▶
//   failure{kind, rank; sentence}        ◀─▶                                 and the end
//
// A part is a packet: `count` elements in wire format; with int32_block, followed by the exponents of the blocks of the
// packet one window later. Exponents of the first window are sent ahead of all, in a packet without elements. Sequence
// numbers count a job's packets over all its operations. An aggregator with shared slots passes a part that finds no
// slot on to the server at the end of the way, and passes on what comes back; the packet's path says whose it is. The
// token keeps strangers out of a job and packets of dead jobs out of live ones; the proof keeps out those who do not
// know the aggregator's secret, and those who replay a recorded Hello.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/in_network/number_format.hpp"
#include "core/sip_hash.hpp"

namespace syntony {

inline constexpr std::uint32_t kAggregationMagic = 0x41595341;  // "ASYA"
inline constexpr std::uint32_t kAggregationVersion = 6;         // 6: questions
inline constexpr std::uint32_t kMostWorkers = 1024;
inline constexpr std::uint32_t kLongestSentence = 4096;
inline constexpr std::uint32_t kLongestWay = 512;  // characters
inline constexpr std::uint32_t kNobody = 0xffffffff;
/// A packet that fits an Ethernet frame of 1500 bytes: a larger one would be lost with any of its fragments.
inline constexpr std::size_t kPacketBytes = 1376;
inline constexpr std::size_t kLongestDatagram = 61440;  // payload bytes

struct AggregationChallenge {
  std::uint32_t magic = kAggregationMagic;
  std::uint32_t version = kAggregationVersion;
  std::array<std::uint64_t, 2> nonce{};  // random, used once
};
static_assert(sizeof(AggregationChallenge) == 24);

struct AggregationHello {
  std::uint32_t magic = kAggregationMagic;
  std::uint32_t version = kAggregationVersion;
  std::array<std::uint64_t, 2> token{};  // random, equal on all workers of a job
  std::uint32_t rank = 0;                // of an aggregator: the lowest below it
  std::uint32_t ranks = 1;               // of the job
  std::uint32_t members = 1;             // ranks whose sum this one contributes
  std::uint32_t under = 1;               // ranks below the aggregator that receives this
  std::uint32_t timeout_ms = 0;          // how long the others may take to join
  std::uint32_t port = 0;                // where this one receives packets
  std::uint32_t above_length = 0;        // bytes that follow: "ADDRESS:PORT RANKS" of those above, separated by commas
  std::uint32_t zero = 0;
  std::uint32_t window = kNobody;  // of an aggregator: the most that its own slots allow
  std::uint32_t slot_bytes = kNobody;
  SipHash proof{};  // proof_of(secret, nonce, this, above)
};
static_assert(sizeof(AggregationHello) == 80);

/// Proves that the sender of this Hello knows the secret now. Any value if there is no secret.
[[nodiscard]] inline SipHash proof_of(std::string_view secret, const std::array<std::uint64_t, 2>& nonce,
                                      AggregationHello hello, std::string_view above) {
  hello.proof = {};
  std::string said(sizeof(nonce) + sizeof(hello), '\0');
  std::memcpy(said.data(), nonce.data(), sizeof(nonce));
  std::memcpy(said.data() + sizeof(nonce), &hello, sizeof(hello));
  return sip_hash(sip_key_of(secret), said.append(above));
}

/// What is sent by TCP after the Hello.
struct AggregationFrame {
  enum class Kind : std::uint32_t { welcome = 1, late = 2, leave = 3, failure = 4 };
  std::uint32_t magic = kAggregationMagic;
  Kind kind = Kind::welcome;
  std::uint64_t token = 0;   // the first half of the job's
  std::uint32_t length = 0;  // bytes of the body that follows
  std::uint32_t zero = 0;
};
static_assert(sizeof(AggregationFrame) == 24);

struct AggregationWelcome {
  std::uint32_t window = 0;  // packets that a worker may have sent without having received their sums
  std::uint32_t slot_bytes = 0;
};

struct AggregationFailure {
  std::uint32_t kind = 0;        // Error::Kind
  std::uint32_t rank = kNobody;  // the rank at fault
};

/// Where a part passed on by an aggregator comes from: the child, and of how many.
struct AggregationPlace {
  std::uint16_t child = 0;
  std::uint16_t children = 0;
  bool operator==(const AggregationPlace&) const = default;
};
inline constexpr std::size_t kDeepestPath = 3;  // levels of aggregators that pass parts on

/// The header of UDP packets.
struct AggregationPacket {
  enum class Kind : std::uint8_t { part = 1, sum = 2, held = 3, question = 4, wanted = 5 };
  static constexpr std::uint8_t kAgain = 1;       // a part that was sent before
  static constexpr std::uint8_t kMarked = 2;      // a switch was congested on its way, or on that of a part of the sum
  static constexpr std::uint8_t kUnmeasured = 4;  // a sum whose `waited` is unknown
  static constexpr std::uint8_t kPassedOn = 8;    // a sum that found no shared slot
  std::uint32_t magic = kAggregationMagic;
  Kind kind = Kind::part;
  std::uint8_t format = 0;
  std::uint8_t flags = 0;
  std::uint8_t depth = 0;   // number of places in the path
  std::uint64_t token = 0;  // the second half of the job's
  std::uint64_t sequence = 0;
  std::uint64_t elements = 0;   // of the whole operation
  std::uint32_t operation = 0;  // counted from 1
  std::uint32_t from = 0;       // the rank of the part's Hello
  std::uint32_t count = 0;      // elements in this packet
  std::uint32_t length = 0;     // bytes that follow
  std::uint32_t waited = 0;     // microseconds that the receiver's part of a sum waited for the others'
  std::array<AggregationPlace, kDeepestPath> path{};  // from the receiver of a part, or the sender of a sum, downwards

  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }

  /// True if both are the same part of the same operation.
  [[nodiscard]] bool fits(const AggregationPacket& other) const {
    return sequence == other.sequence && operation == other.operation && elements == other.elements &&
           format == other.format && count == other.count && length == other.length;
  }
};
static_assert(sizeof(AggregationPacket) == 64);

/// How an operation is cut into packets; both ends compute the same.
struct AggregationPlan {
  NumberFormat format = NumberFormat::float32;
  std::size_t elements = 0;
  std::size_t window = 1;
  std::size_t elements_per_chunk = 1;

  AggregationPlan() = default;
  AggregationPlan(NumberFormat format_, std::size_t elements_, std::size_t window_, std::size_t slot_bytes)
      : format(format_), elements(elements_), window(window_), elements_per_chunk(slot_bytes / wire_bytes(format_)) {}

  [[nodiscard]] bool scaled() const { return format == NumberFormat::int32_block; }
  [[nodiscard]] std::size_t chunks() const { return (elements + elements_per_chunk - 1) / elements_per_chunk; }
  [[nodiscard]] std::size_t begin(std::size_t chunk) const { return std::min(elements, chunk * elements_per_chunk); }
  [[nodiscard]] std::size_t count(std::size_t chunk) const { return begin(chunk + 1) - begin(chunk); }
  [[nodiscard]] std::size_t payload(std::size_t chunk) const { return count(chunk) * wire_bytes(format); }
  /// Exponents sent with a chunk: those of the chunk one window later.
  [[nodiscard]] std::size_t exponents_with(std::size_t chunk) const {
    return scaled() ? blocks_of(count(chunk + window)) : 0;
  }
  /// Exponents sent ahead of all chunks: those of the first window, chunk after chunk.
  [[nodiscard]] std::size_t exponents_ahead() const {
    std::size_t blocks = 0;
    for (std::size_t chunk = 0; scaled() && chunk < std::min(window, chunks()); ++chunk)
      blocks += blocks_of(count(chunk));
    return blocks;
  }
  [[nodiscard]] std::size_t length(std::size_t chunk) const { return payload(chunk) + exponents_with(chunk); }
};

/// The largest payload of a packet: a slot's bytes and its blocks' exponents.
[[nodiscard]] constexpr std::size_t slot_capacity(std::size_t slot_bytes) {
  return slot_bytes + blocks_of(slot_bytes / sizeof(std::int32_t));
}

/// The window that `slots` slots allow. Each sum is kept until all have it, i.e. until every worker's packet one window
/// later has arrived, so there are two slots per packet in flight. The exponents of a window must fit into one slot.
[[nodiscard]] constexpr std::size_t window_of(std::size_t slots, std::size_t slot_bytes) {
  const std::size_t blocks = blocks_of(slot_bytes / sizeof(std::int32_t));
  return std::max<std::size_t>(1, std::min(slots / 2, slot_bytes / blocks));
}

}  // namespace syntony

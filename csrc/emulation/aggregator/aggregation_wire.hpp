// The bytes between a worker and an aggregator, over one TCP connection per worker. Little-endian, as in memory.
//
//   worker                                     aggregator
//                                        ◀──   Challenge{nonce}              to whoever connects
//   Hello{token, rank, ranks; proof}     ──▶
//                                        ◀──   Welcome{window, slot bytes}      when all workers of the job have come
//   begin{operation; elements, format}   ──▶
//   exponents                            ──▶   the largest of all workers'      int32_block only, for the first window
//                                        ◀──   exponents
//   chunk 0, 1, .. window-1              ──▶   slot by slot: the sum, when every worker's chunk has come
//                                        ◀──   chunk 0, 1, ..
//   chunk window, window+1, ..           ──▶   one more for every sum that came back
//   leave                                ──▶
//                                        ◀──   failure{kind, rank; sentence}    instead of anything else, and the end
//
// A chunk is `elements_per_chunk` elements in wire format, of int32_block followed by the exponents of the blocks of
// the chunk one window later. The token keeps strangers out of a job and frames of dead jobs out of living ones; the
// proof keeps those away who do not know the aggregator's secret, and those who have recorded somebody's Hello.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/sip_hash.hpp"
#include "emulation/aggregator/number_format.hpp"

namespace syntony {

inline constexpr std::uint32_t kAggregationMagic = 0x41595341;  // "ASYA"
inline constexpr std::uint32_t kAggregationVersion = 3;         // 3: a proof in Hello, over a Challenge
inline constexpr std::uint32_t kMostWorkers = 1024;
inline constexpr std::uint32_t kLongestSentence = 4096;
inline constexpr std::uint32_t kNobody = 0xffffffff;

struct AggregationChallenge {
  std::uint32_t magic = kAggregationMagic;
  std::uint32_t version = kAggregationVersion;
  std::array<std::uint64_t, 2> nonce{};  // random, used once
};
static_assert(sizeof(AggregationChallenge) == 24);

struct AggregationHello {
  std::uint32_t magic = kAggregationMagic;
  std::uint32_t version = kAggregationVersion;
  std::array<std::uint64_t, 2> token{};  // equal on all workers of a job, random
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t timeout_ms = 0;  // how long the others may take to come
  std::uint32_t zero = 0;
  SipHash proof{};  // proof_of(secret, nonce, this)
};
static_assert(sizeof(AggregationHello) == 56);

/// Who knows the secret and greets with this Hello now. Any where there is no secret.
[[nodiscard]] inline SipHash proof_of(std::string_view secret, const std::array<std::uint64_t, 2>& nonce,
                                      const AggregationHello& hello) {
  const std::array<std::uint64_t, 5> said{nonce[0], nonce[1], hello.token[0], hello.token[1],
                                          std::uint64_t{hello.rank} << 32U | hello.ranks};
  return sip_hash(sip_key_of(secret), {reinterpret_cast<const char*>(said.data()), sizeof(said)});
}

struct AggregationFrame {
  enum class Kind : std::uint32_t { welcome = 1, begin = 2, exponents = 3, chunk = 4, leave = 5, failure = 6 };
  std::uint32_t magic = kAggregationMagic;
  Kind kind = Kind::chunk;
  std::uint64_t token = 0;  // the first half of the job's
  std::uint32_t operation = 0;
  std::uint32_t chunk = 0;
  std::uint32_t length = 0;  // bytes of the body that follows
  std::uint32_t zero = 0;
};
static_assert(sizeof(AggregationFrame) == 32);

struct AggregationWelcome {
  std::uint32_t window = 0;  // chunks that a worker may have sent without having their sums
  std::uint32_t slot_bytes = 0;
};

struct AggregationBegin {
  std::uint64_t elements = 0;
  std::uint32_t format = 0;
  std::uint32_t timeout_ms = 0;
  bool operator==(const AggregationBegin&) const = default;
};
static_assert(sizeof(AggregationBegin) == 16);

struct AggregationFailure {
  std::uint32_t kind = 0;        // Error::Kind
  std::uint32_t rank = kNobody;  // the guilty
};

/// How an operation is cut into chunks: what both ends compute from Begin and Welcome alone.
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
  /// Exponents that travel with a chunk: those of the chunk one window later.
  [[nodiscard]] std::size_t exponents_with(std::size_t chunk) const {
    return scaled() ? blocks_of(count(chunk + window)) : 0;
  }
  /// Exponents that travel ahead of all chunks: those of the first window, chunk after chunk.
  [[nodiscard]] std::size_t exponents_ahead() const {
    std::size_t blocks = 0;
    for (std::size_t chunk = 0; scaled() && chunk < std::min(window, chunks()); ++chunk)
      blocks += blocks_of(count(chunk));
    return blocks;
  }
  [[nodiscard]] std::size_t length(std::size_t chunk) const { return payload(chunk) + exponents_with(chunk); }
};

/// The largest body of a chunk or exponents frame: a slot's bytes and its blocks' exponents.
[[nodiscard]] constexpr std::size_t slot_capacity(std::size_t slot_bytes) {
  return slot_bytes + blocks_of(slot_bytes / sizeof(std::int32_t));
}

/// The window that `slots` slots allow: the exponents of a whole window must fit into one slot.
[[nodiscard]] constexpr std::size_t window_of(std::size_t slots, std::size_t slot_bytes) {
  const std::size_t blocks = blocks_of(slot_bytes / sizeof(std::int32_t));
  return std::max<std::size_t>(1, std::min(slots, slot_bytes / blocks));
}

}  // namespace syntony

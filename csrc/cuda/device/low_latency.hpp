// Messages that announce their own arrival: every line carries a flag beside its data, so a receiver polls the data
// itself and no counter has to follow it. After NCCL's protocols of the same names.
//
//     ll      | data 4 | flag 4 | data 4 | flag 4 |       8 bytes are written at once by any machine
//     ll128   | data 120                  | flag 8 |      by 8 threads of a warp with one 128-byte store
//
// The flag is the number of the message in its FIFO, so a line left from an earlier round has another flag. An ll flag
// has 32 bits and repeats after 2^32 messages: before each half of that range ends, whole slots are filled, not only
// what a message needs (`lines_to_fill`), so that no flag in a slot is older than 2^31.
//
// A receiver begins when the first line has arrived. The others are then in flight, because a sender never stops in the
// middle of a message: so a block in here waits only for what a running block is writing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/arena.hpp"
#include "cuda/device/combination.hpp"

namespace syntony::cuda {

inline constexpr std::uint64_t kWord = 8;

[[nodiscard]] SYNTONY_DEVICE std::uint64_t lines_of(Protocol protocol, std::uint64_t bytes) {
  const std::uint64_t data = protocol == Protocol::ll ? kWord : kLineBytes - kWord;
  return (bytes + data - 1) / data;
}
[[nodiscard]] SYNTONY_DEVICE std::uint64_t line_stride(Protocol protocol) {
  return protocol == Protocol::ll ? 2 * kWord : kLineBytes;
}
/// True for the last messages of each half of the 32-bit numbers, as many as a FIFO holds.
[[nodiscard]] SYNTONY_DEVICE bool fills_slots(std::uint64_t number, std::uint32_t depth) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 31;
  return number % kHalf >= kHalf - depth;
}

/// Up to 8 bytes from any address, zero-padded.
[[nodiscard]] SYNTONY_DEVICE std::uint64_t load_word(const std::byte* from, std::uint64_t bytes) {
  if (bytes >= kWord && reinterpret_cast<std::uintptr_t>(from) % kWord == 0) return load_element<std::uint64_t>(from);
  std::uint64_t word = 0;
  for (std::uint64_t i = 0; i < kWord && i < bytes; ++i) word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return word;
}
SYNTONY_DEVICE void store_word(std::byte* to, std::uint64_t word, std::uint64_t bytes) {
  if (bytes >= kWord && reinterpret_cast<std::uintptr_t>(to) % kWord == 0) return store_element(to, word);
  for (std::uint64_t i = 0; i < kWord && i < bytes; ++i) to[i] = static_cast<std::byte>(word >> (8 * i));
}

/// Stores the word at byte `at`, the sum of `incoming`, if the message has one, and of all sources, to all
/// destinations. Operands are widened and the sum is rounded once.
template <class Format>
SYNTONY_DEVICE std::uint64_t sum_word(const Combination& combination, ReduceOp op, std::uint64_t at, std::uint64_t left,
                                      std::uint64_t incoming) {
  constexpr std::uint32_t kElements = kWord / sizeof(typename Format::Storage);
  struct Elements {
    typename Format::Storage e[kElements];
  };
  const bool given = combination.lines_in != nullptr;
  Elements elements = bits_as<Elements>(given ? incoming : load_word(combination.source(0) + at, left));
  typename Format::Wide wide[kElements];
  SYNTONY_UNROLL
  for (std::uint32_t i = 0; i < kElements; ++i) wide[i] = Format::widen(elements.e[i]);
  for (std::uint32_t k = given ? 0 : 1; k < combination.sources; ++k) {
    elements = bits_as<Elements>(load_word(combination.source(k) + at, left));
    SYNTONY_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) wide[i] = Format::apply(op, wide[i], Format::widen(elements.e[i]));
  }
  SYNTONY_UNROLL
  for (std::uint32_t i = 0; i < kElements; ++i) elements.e[i] = Format::narrow(wide[i]);
  return bits_as<std::uint64_t>(elements);
}

SYNTONY_CALLED std::uint64_t combine_word(DType dtype, ReduceOp op, const Combination& combination, std::uint64_t at,
                                          std::uint64_t incoming) {
  const std::uint64_t left = at < combination.bytes ? combination.bytes - at : 0;
  const bool given = combination.lines_in != nullptr;
  std::uint64_t word = incoming;
  if (combination.sources + (given ? 1 : 0) > 1) {
    visit_format(dtype, [&](auto format) { word = sum_word<decltype(format)>(combination, op, at, left, incoming); });
  } else if (!given) {
    word = load_word(combination.source(0) + at, left);
  }
  for (std::uint32_t d = 0; d < combination.destinations; ++d) store_word(combination.destination(d) + at, word, left);
  return word;
}

template <class Machine>
SYNTONY_DEVICE void combine_ll(const Machine& machine, DType dtype, ReduceOp op, const Combination& combination) {
  const auto in = static_cast<std::uint32_t>(combination.flag_in);
  const auto out = static_cast<std::uint32_t>(combination.flag_out);
  const std::uint64_t words = lines_of(Protocol::ll, combination.bytes);
  for (std::uint64_t w = machine.thread(); w < words; w += machine.threads()) {
    const std::uint64_t incoming =
        combination.lines_in == nullptr ? 0 : machine.load_ll(combination.lines_in + w * 2 * kWord, in);
    const std::uint64_t word = combine_word(dtype, op, combination, w * kWord, incoming);
    if (combination.lines_out != nullptr) machine.store_ll(combination.lines_out + w * 2 * kWord, word, out);
  }
  for (std::uint64_t w = words + machine.thread(); w < combination.lines_to_fill; w += machine.threads()) {
    machine.store_ll(combination.lines_out + w * 2 * kWord, 0, out);
  }
}

/// Machine::kThreadsOfALine threads share a line; each has kWords of its 16 words, and the last of all is the flag.
template <class Machine>
SYNTONY_DEVICE void combine_ll128(const Machine& machine, DType dtype, ReduceOp op, const Combination& combination) {
  constexpr std::uint32_t kWords = 16 / Machine::kThreadsOfALine;
  const std::uint64_t group = machine.thread() / Machine::kThreadsOfALine;
  const std::uint64_t groups = machine.threads() / Machine::kThreadsOfALine;
  const std::uint32_t first = machine.thread() % Machine::kThreadsOfALine * kWords;
  const std::uint64_t lines = lines_of(Protocol::ll128, combination.bytes);
  // All groups take equally many turns, so that the threads of a warp stay together.
  for (std::uint64_t begin = 0; begin < lines; begin += groups) {
    const std::uint64_t line = begin + group;
    const bool mine = line < lines;
    std::uint64_t words[kWords] = {};
    if (combination.lines_in != nullptr) {
      machine.load_ll128(combination.lines_in + (mine ? line : 0) * kLineBytes, combination.flag_in, first, words,
                         mine);
    }
    if (!mine) continue;
    SYNTONY_UNROLL
    for (std::uint32_t w = 0; w < kWords; ++w) {
      if (first + w == 15) continue;
      words[w] = combine_word(dtype, op, combination, line * (kLineBytes - kWord) + (first + w) * kWord, words[w]);
    }
    if (combination.lines_out != nullptr) {
      machine.store_ll128(combination.lines_out + line * kLineBytes, combination.flag_out, first, words);
    }
  }
}

/// Like `combine`, if the incoming or outgoing message is in lines.
template <class Machine>
SYNTONY_DEVICE void combine_lines(const Machine& machine, Protocol protocol, DType dtype, ReduceOp op,
                                  const Combination& combination) {
  if (protocol == Protocol::ll) {
    combine_ll(machine, dtype, op, combination);
  } else {
    combine_ll128(machine, dtype, op, combination);
  }
}

}  // namespace syntony::cuda

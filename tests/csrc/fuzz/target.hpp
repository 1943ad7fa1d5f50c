// What is fuzzed: code that reads bytes from strangers or peers and must never crash, hang, or accept invalid input.
//
//   seeds ──▶ mutate ──▶ target.take(input)      the driver (main.cpp), every input named by (seed, number)
//   corpus ──────────▶ LLVMFuzzerTestOneInput    libFuzzer, where there is a clang: entry.cpp
//
// For every input, a target determines the expected result by a second parser that shares no code with the first, and
// calls fault() if the result differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace syntony::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  std::string_view name;
  /// Valid inputs to mutate. The same every time.
  std::vector<Bytes> (*seeds)();
  /// Feeds the target an input. True if all of it was accepted; false if some of it was rejected or is incomplete.
  bool (*take)(std::span<const std::byte> input);
  /// Called after the last input: what was attacked still works.
  void (*end)();
};

extern const Target kFrames;      // frames and credits on a data socket (frames.cpp)
extern const Target kControl;     // messages on a control socket (control_messages.cpp)
extern const Target kHandshake;   // what is sent to a rank that waits for others (handshake.cpp)
extern const Target kDirectory;   // where ranks say that they listen (directory.cpp)
extern const Target kAggregator;  // what is sent to an aggregator (aggregator_jobs.cpp)
extern const Target kPackets;     // what is sent to stacked aggregators (aggregator_packets.cpp)
extern const Target kPrograms;    // Programs for the executor (programs.cpp)

[[nodiscard]] std::span<const Target* const> targets();

/// Says what went wrong and ends the process like a crash.
[[noreturn]] void fault(const std::string& what);
/// Calls fault() unless `holds`.
inline void require(bool holds, const char* what) {
  if (!holds) fault(what);
}

/// Appends the bytes of a message.
template <typename Message>
void append(Bytes& bytes, const Message& message) {
  const auto* first = reinterpret_cast<const std::byte*>(&message);
  bytes.insert(bytes.end(), first, first + sizeof(Message));
}

}  // namespace syntony::fuzz

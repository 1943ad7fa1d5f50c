// What is fuzzed: something that reads bytes of strangers or of peers, and may answer them with anything but a crash, a
// hang, or belief in what is not true.
//
//   seeds ──▶ mutate ──▶ target.take(input)      the driver (main.cpp), every input named by (seed, number)
//   corpus ──────────▶ LLVMFuzzerTestOneInput    libFuzzer, where there is a clang: entry.cpp
//
// A target decides for every input, by a second reading of its own that shares no code with the first, what should come
// of it, and calls fault() where something else does.
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
  /// Inputs that mean something, to be spoilt. The same every time.
  std::vector<Bytes> (*seeds)();
  /// Gives the target an input. True when all of it was believed; false when some of it was refused or is not whole.
  bool (*take)(std::span<const std::byte> input);
  /// After the last input: what was attacked still works.
  void (*end)();
};

extern const Target kFrames;      // frames and credits on a data socket (frames.cpp)
extern const Target kControl;     // messages on a control socket (control_messages.cpp)
extern const Target kHandshake;   // what is said to a rank that waits for others (handshake.cpp)
extern const Target kAggregator;  // what is said to an aggregator (aggregator_jobs.cpp)
extern const Target kPackets;     // what is sent to aggregators above one another (aggregator_packets.cpp)
extern const Target kPrograms;    // Programs for the executor (programs.cpp)

[[nodiscard]] std::span<const Target* const> targets();

/// Says what went wrong and ends the process as a crash does.
[[noreturn]] void fault(const std::string& what);
/// fault() unless `holds`.
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

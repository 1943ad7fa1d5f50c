// What the machine explores: threads running the shipped sources.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/machine.hpp"

namespace syntony::model {

struct Scenario {
  std::string_view name;
  Begin begin;
  bool soak = false;  // takes minutes
};

[[nodiscard]] std::span<const Scenario> rounds();
[[nodiscard]] std::span<const Scenario> streams();
[[nodiscard]] std::span<const Scenario> board();
[[nodiscard]] std::span<const Scenario> recorder();

/// A few lines of atomics each, and whether they can fail according to the memory model: proves that the machine
/// neither misses faults nor reports false ones.
struct Litmus {
  std::string_view name;
  Begin begin;
  bool fault = false;
};
[[nodiscard]] std::span<const Litmus> litmus();

}  // namespace syntony::model

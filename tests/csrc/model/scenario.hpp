// What the machine is given to explore: threads over the sources that ship.
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

/// A few lines of atomics each, and whether a fault can be found in them: what is known of the memory model, so that
/// the machine is neither blind nor sees ghosts.
struct Litmus {
  std::string_view name;
  Begin begin;
  bool fault = false;
};
[[nodiscard]] std::span<const Litmus> litmus();

}  // namespace syntony::model

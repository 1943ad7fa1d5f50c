// How urgent an operation is: one of three priorities.
//
// Three match what schedulers of training steps need (bulk gradients, results needed later, results needed now), and
// each further priority would cost every pair of ranks its own streams. In a group each priority is a separate level
// (core/group/group.hpp) with its own sequence numbers, windows and order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/program/program.hpp"

namespace syntony {

enum class Priority : std::uint8_t { low, normal, high };
inline constexpr std::size_t kPriorities = 3;
inline constexpr std::array<Priority, kPriorities> kMostUrgentFirst{Priority::high, Priority::normal, Priority::low};
inline constexpr std::array<std::string_view, kPriorities> kPriorityNames{"low", "normal", "high"};

/// How much progress the operations in flight leave to operations of lower priority in the same process.
enum class Share : std::uint8_t {
  none,    // one of them moved a moment ago
  little,  // they are waiting for others
  all,     // there are none
};

[[nodiscard]] constexpr std::size_t index_of(Priority priority) { return static_cast<std::size_t>(priority); }
[[nodiscard]] constexpr std::string_view name_of(Priority priority) { return kPriorityNames[index_of(priority)]; }

/// The priority if the caller does not choose one. An all_to_all goes first because the next layer waits for it,
/// whereas gradient sums are needed only at the end of the step. Depends only on what all ranks know, so they agree.
[[nodiscard]] constexpr Priority usual_priority(Collective collective) {
  return collective == Collective::all_to_all ? Priority::high : Priority::normal;
}

}  // namespace syntony

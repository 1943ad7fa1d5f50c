// How urgent an operation is: one of three priorities.
//
// Three, because that is what schedulers of training steps ask for (bulk gradients, what somebody will wait for, what
// somebody waits for now), and because each costs every pair of ranks its own streams. In a group each priority is a
// level of its own (core/group/group.hpp): own numbers, own windows, own order.
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

/// What share of progress the operations in flight leave to those of a lower priority in the same process.
enum class Share : std::uint8_t {
  none,    // one of them has moved a moment ago
  little,  // they wait for others
  all,     // there are none
};

[[nodiscard]] constexpr std::size_t index_of(Priority priority) { return static_cast<std::size_t>(priority); }
[[nodiscard]] constexpr std::string_view name_of(Priority priority) { return kPriorityNames[index_of(priority)]; }

/// Of an operation whose caller does not say: an all_to_all goes ahead, as the layer that needs it waits, where sums of
/// gradients are waited for at the end of the step. Depends on what all ranks know, so they agree.
[[nodiscard]] constexpr Priority usual_priority(Collective collective) {
  return collective == Collective::all_to_all ? Priority::high : Priority::normal;
}

}  // namespace syntony

// A collective in flight in a Group, and how far it may advance in a step when more urgent ones leave it only a share.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "core/group/group.hpp"
#include "core/in_network/aggregation_thread.hpp"
#include "core/one_host/shared_operation.hpp"
#include "core/progress/executor.hpp"

namespace syntony {

struct Group::Operation : StagedCall {
  static constexpr std::chrono::milliseconds kLongestHold{50};
  static constexpr std::chrono::milliseconds kPatience{10};
  static constexpr Pace kHeld{.instructions = 1, .frames = 0};
  static constexpr Pace kYielding{.instructions = 1, .frames = 1};

  std::shared_ptr<Work> work;
  // One of these, once admitted:
  std::optional<Execution> execution;
  std::optional<SharedOperation> shared;
  std::shared_ptr<const AggregationThread::Job> aggregated;
  bool done = false;
  Share share = Share::all;             // the share it was given,
  Work::Clock::time_point still_since;  // and since when it has not moved with less than all

  [[nodiscard]] Pace pace(Share left) {
    if (left == Share::all) {
      share = left;
      return {};
    }
    const Work::Clock::time_point now = Work::Clock::now();
    if (std::exchange(share, left) != left) still_since = now;
    if (left == Share::none) return now - still_since < kLongestHold ? kHeld : kYielding;
    return now - still_since < kPatience ? kYielding : Pace{};
  }
};

}  // namespace syntony

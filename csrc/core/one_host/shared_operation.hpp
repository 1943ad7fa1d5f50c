// One collective in flight among one host's ranks, through the SharedRounds of their group.
//
// No Program, no queue, no header per message: one loop over shared memory, compared bit by bit with the equivalent
// Programs in a test (tests/csrc/runtime/calls/test_collectives.py).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/one_host/agreed_way.hpp"
#include "core/one_host/shared_rounds.hpp"
#include "core/one_host/shared_steps.hpp"

namespace syntony {

class SharedOperation {
 public:
  /// `rounds` and `call` must outlive this.
  SharedOperation(SharedRounds& rounds, const Descriptor& descriptor, const Call& call);

  /// Shows its part of a round if it can. step() does so, too, but the earlier the better: until peers see it, this
  /// rank has time for what they need not wait for.
  bool show();
  /// Advances as far as possible now, but at most by a round, or by part of a long one. True if anything moved. Throws
  /// SharedMismatch, perhaps about the previous operation.
  bool step();
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;

 private:
  using Clock = std::chrono::steady_clock;

  void begin();
  [[nodiscard]] bool arrived();
  /// True once what all ranks show in the first round has been heard, if ways are measured.
  [[nodiscard]] bool met();

  SharedRounds& rounds_;
  SharedJob job_;
  Stamp stamp_;
  std::uint64_t ticket_;
  std::unique_ptr<SharedSteps> steps_;    // from its turn on: which ones depends on what earlier operations agreed on
  AgreedWay* agreed_ = nullptr;           // if there is a choice
  std::optional<Clock::time_point> met_;  // when all ranks had shown their first round,
  Clock::duration showing_{};             // and how long it took this rank to show its own
  bool done_ = false;
  bool shown_ = false;      // in this round
  std::uint32_t next_ = 0;  // the first peer that has not been seen in this round
};

}  // namespace syntony

// One collective of one host's ranks on its way through the SharedRounds of their group.
//
// No Program, no queue, no header per message: one loop over shared memory, and compared bit by bit with
// the Programs it stands for (tests/csrc/runtime/calls/test_collectives.py).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/one_host/shared_rounds.hpp"
#include "core/one_host/shared_steps.hpp"

namespace syntony {

class SharedOperation {
 public:
  /// `rounds` and `call` must outlive it.
  SharedOperation(SharedRounds& rounds, const Descriptor& descriptor, const Call& call);

  /// As far as it goes now, but not further than a round, or a part of one that takes long. True when anything moved.
  /// Throws SharedMismatch, perhaps about the operation before.
  bool step();
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;

 private:
  [[nodiscard]] bool arrived();

  SharedRounds& rounds_;
  SharedJob job_;
  Stamp stamp_;
  std::uint64_t ticket_;
  std::unique_ptr<SharedSteps> steps_;  // from its turn on: which ones depends on what the operations before agreed on
  bool done_ = false;
  bool shown_ = false;      // this round's
  std::uint32_t next_ = 0;  // the first peer that has not been seen in this round
};

}  // namespace syntony

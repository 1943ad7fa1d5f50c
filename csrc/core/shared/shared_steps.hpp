// What a rank does in each round of a shared collective (shared_exchange.hpp has the rounds).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>

#include "core/control.hpp"
#include "core/runtime/communicator.hpp"
#include "core/shared/shared_exchange.hpp"

namespace syntony {

class SharedSteps {
 public:
  SharedSteps() = default;
  virtual ~SharedSteps() = default;
  SharedSteps(const SharedSteps&) = delete;
  SharedSteps& operator=(const SharedSteps&) = delete;

  [[nodiscard]] virtual bool done() const = 0;
  /// Writes what peers need into this rank's next place. Once per round.
  virtual void show() = 0;
  /// Whether this round waits for what `peer` shows.
  [[nodiscard]] virtual bool needs(std::uint32_t peer) const = 0;
  /// Reads what the peers showed. False: there is more to do in this round, call again.
  virtual bool read() = 0;
};

/// One of these for an operation. `blocks` as in Communicator::run, of sizes that all ranks know alike; they and
/// `exchange` must outlive the steps.
[[nodiscard]] std::unique_ptr<SharedSteps> shared_steps(SharedExchange& exchange, const Descriptor& descriptor,
                                                        std::span<const Block> blocks);

}  // namespace syntony

// What a rank does in each round of a shared collective (shared_rounds.hpp has the rounds).
#pragma once

#include <cstdint>
#include <memory>

#include "core/one_host/shared_job.hpp"

namespace syntony {

class SharedSteps {
 public:
  SharedSteps() = default;
  virtual ~SharedSteps() = default;
  SharedSteps(const SharedSteps&) = delete;
  SharedSteps& operator=(const SharedSteps&) = delete;

  [[nodiscard]] virtual bool done() const = 0;
  /// Writes what peers need into this rank's next buffer. Once per round.
  virtual void show() = 0;
  /// Work that needs nothing from the peers: called once per round, after show().
  virtual void meanwhile() {}
  /// True if this round waits for what `peer` shows.
  [[nodiscard]] virtual bool needs(std::uint32_t peer) const = 0;
  /// Reads what the peers showed. False: there is more to do in this round; call again.
  virtual bool read() = 0;
};

/// With copies that stay in cache (staged_steps.cpp).
[[nodiscard]] std::unique_ptr<SharedSteps> staged_steps(const SharedJob& job);
/// Directly from the peers' own buffers, if the system lets ranks read them (reference_steps.cpp).
[[nodiscard]] std::unique_ptr<SharedSteps> reference_steps(const SharedJob& job);

}  // namespace syntony

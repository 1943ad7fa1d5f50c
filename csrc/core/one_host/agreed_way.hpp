// The way that moves large blocks fastest, as the ranks of a host find out and agree.
//
// What pays off depends on more than sizes: on which caches the ranks' cores share, on the system's price of reading
// another process's memory, on large pages, on whether buffers are registered. So the first calls of a collective and
// size try the ways one after another, soon only those that are nearly as fast as the best, and later ones take the
// fastest. Now and then one tries another way, for times change; and if the way taken has become much faster or slower
// (other programs' use of a shared cache does that), what the others once cost is forgotten and all are tried again:
//
//      call      0 1 2 3 4 5 | 6 7 ... 15 | 16 | 17 18 ...      3 ways: the second is the fastest, the third close
//      way       0 0 0 1 2 1 | 1 1 ...  1 |  2 |  1  1 ...
//
// In the first round of a call every rank shows how long each way took it (StageBuffer::costs), and the next call takes
// what is fastest for all together. So all ranks take the same way. Waiting for peers that are late is not counted.
//
// (core/shm/faster_way.hpp is for what a rank decides alone.)
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/one_host/shared_way.hpp"
#include "core/program/collective.hpp"
#include "core/shm/shm_segment.hpp"

namespace syntony {

/// Of calls of one kind. Ranks that make the same calls are told the same choices.
class AgreedWay {
 public:
  /// At most StageBuffer::kCosts `choices`, the first of which is taken first. `bytes`: of all ranks' longest blocks,
  /// about.
  AgreedWay(std::vector<SharedChoice> choices, std::size_t bytes);

  [[nodiscard]] bool alone() const { return choices_.size() == 1; }
  /// For the next call.
  [[nodiscard]] SharedChoice next();
  /// How long that call took this rank.
  void took(std::chrono::nanoseconds time, std::size_t bytes);

  /// Of this rank, as shown to its peers: time per byte in units that all ranks share; 0: not known yet.
  [[nodiscard]] const StageBuffer::Costs& costs() const { return costs_; }
  /// What every rank has shown in the first round of this call; then those of the last call are forgotten.
  void hear(const StageBuffer::Costs& of_rank);
  void forget() { heard_.fill(0); }

 private:
  /// A call that tries what costs at most so much; 0: it takes the fastest. Turns begin with another way each.
  struct Try {
    std::uint64_t most = 0;
    std::uint64_t turn = 0;
  };
  [[nodiscard]] Try tries(std::uint64_t least) const;  // `least`: what the fastest costs
  [[nodiscard]] bool changed() const;                  // the cost of `current_`, since it settled
  void review();
  [[nodiscard]] bool reviewing() const;
  [[nodiscard]] std::size_t fastest() const;  // as far as known
  /// The next one in turn that costs at most `most`, or is not known.
  [[nodiscard]] std::size_t following(std::size_t choice, std::uint64_t most) const;

  std::vector<SharedChoice> choices_;
  StageBuffer::Costs costs_{};
  std::array<std::uint64_t, StageBuffer::kCosts> heard_{};  // sums over ranks
  std::uint64_t beginning_;                                 // calls in which all ways are tried
  std::uint64_t calls_ = 0;
  std::size_t taken_ = 0;       // by the last call
  std::size_t current_ = 0;     // the fastest, but for differences that may be chance
  std::uint64_t settled_ = 0;   // what it cost when it was found; 0: not known yet
  std::uint64_t reviewed_ = 0;  // the call that began the last review
};

/// Of all calls of a priority.
class AgreedWays {
 public:
  /// Null if there is nothing to choose. Valid as long as this.
  [[nodiscard]] AgreedWay* of(Collective collective, DType dtype, std::uint32_t ranks, std::size_t bytes,
                              bool readable);

 private:
  struct Kind {
    Collective collective;
    DType dtype;
    bool readable;
    int magnitude;  // of the longest block: sizes that differ by less than a factor of two are alike
    auto operator<=>(const Kind&) const = default;
  };
  std::map<Kind, AgreedWay> ways_;
};

}  // namespace syntony

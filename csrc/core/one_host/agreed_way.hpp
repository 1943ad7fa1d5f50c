// The way that moves large blocks fastest, as the ranks of a host find out and agree.
//
// What pays off depends on more than sizes: on which caches the ranks' cores share, on the system's price of reading
// another process's memory, on large pages, on whether buffers are registered. So the first calls of a collective and
// size try the ways one after another, and later ones take the fastest. Now and then one tries another way, for times
// change; and if the way taken has become much faster or slower (other programs' use of a shared cache does that), what
// the others once cost is forgotten and all are tried again:
//
//      call    0 1 2 3 | 4 5 6 7 8 9 10 11 | 12 13 14 15 | 16 ... 31 | 32 | 33 ...    3 ways: the second is the
//      way     0 0 0 0 | 1 1 1 1 2 2  2  2 |  0  0  0  0 |  1 ...  1 |  2 |  1 ...    fastest, the third close
//
// In the first round of a call every rank shows how long each way took it (StageBuffer::costs), and the next call takes
// what is fastest for all together. So all ranks take the same way. Waiting for peers that are late is not counted.
//
// If calls follow each other closely, the time between them is part of what a way costs: an input is written again
// before the next call, which takes up to four times as long if peers have read its lines (Zen 5, 16 MiB of which they
// have read 8: 990 instead of 260 us, as long as the call itself).
//
// (core/shm/faster_way.hpp is for what a rank decides alone.)
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
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
  /// At most StageBuffer::kCosts `choices`, the first of which is the usual one and taken first. Another must cost less
  /// by more than 1 / `doubt` of what the present one costs, besides what may be noise.
  explicit AgreedWay(std::vector<SharedChoice> choices, std::uint64_t doubt = kNone);
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  [[nodiscard]] bool alone() const { return choices_.size() == 1; }
  /// For the next call.
  [[nodiscard]] SharedChoice next();
  /// How long that call took this rank,
  void took(std::chrono::nanoseconds time, std::size_t bytes);
  /// and how much later all ranks had begun another one.
  void resumed(std::chrono::nanoseconds later);

  /// Of this rank, as shown to its peers: time per byte in units that all ranks share; 0: not known yet.
  [[nodiscard]] const StageBuffer::Costs& costs() const { return costs_; }
  /// What every rank has shown in the first round of this call; then those of the last call are forgotten.
  void hear(const StageBuffer::Costs& of_rank);
  void forget() { heard_.fill(0); }

 private:
  [[nodiscard]] bool changed() const;  // the cost of `current_`, since it settled
  void review();
  [[nodiscard]] std::size_t fastest() const;  // as far as known
  /// The one to be tried before the fastest is known; none if all have been tried often enough.
  [[nodiscard]] std::optional<std::size_t> untried() const;
  /// The one to be tried now and then, in turn.
  [[nodiscard]] std::size_t tried_again(std::uint64_t least) const;
  /// From what is known of calls and of what follows them to `costs_`.
  void add_up();

  /// A call that has ended.
  struct Ended {
    std::size_t choice = 0;
    std::chrono::nanoseconds time{};
    std::size_t bytes = 0;
  };

  std::vector<SharedChoice> choices_;
  // 0: not known. Of calls alone, and with the time until the next one begins: ranks that share a core are interrupted
  // in either, so the least of both parts would be too little.
  StageBuffer::Costs of_calls_{}, of_periods_{};
  StageBuffer::Costs costs_{};
  Ended ended_;
  std::array<std::uint64_t, StageBuffer::kCosts> heard_{};  // sums over ranks
  std::vector<std::uint64_t> tries_;                        // calls that took it: first ones, since a review
  std::uint64_t doubt_;
  std::uint64_t calls_ = 0;
  std::size_t taken_ = 0;       // by the last call
  std::size_t current_ = 0;     // the fastest, but for differences that may be chance
  std::uint64_t settled_ = 0;   // what it cost when it was found; 0: not known yet
  std::uint64_t reviewed_ = 0;  // the call that began the last review
};

/// Of all calls of a priority.
class AgreedWays {
 public:
  using Clock = std::chrono::steady_clock;

  /// Null if there is nothing to choose. Valid as long as this.
  [[nodiscard]] AgreedWay* of(Collective collective, DType dtype, std::uint32_t ranks, std::size_t bytes,
                              bool readable);

  /// A call begins: at `met` if its ways are measured.
  void begins(Clock::time_point met);
  void begins_unmeasured() { last_ = nullptr; }
  /// A call of `way` that took so long ends.
  void ends(AgreedWay& way, std::chrono::nanoseconds time, std::size_t bytes, Clock::time_point now);

 private:
  struct Kind {
    Collective collective;
    DType dtype;
    bool readable;
    int magnitude;  // of the longest block: sizes that differ by less than a factor of two are alike
    auto operator<=>(const Kind&) const = default;
  };
  std::map<Kind, AgreedWay> ways_;
  AgreedWay* last_ = nullptr;  // of the call before this one, if it was measured,
  Clock::time_point ended_;    // and when that call ended
};

}  // namespace syntony

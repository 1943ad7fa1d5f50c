// Steady states: a simulation need not repeat what it has simulated once.
//
//     slice    0  1  2  3  4  5  6  7  8  9 10 11 ..                 997 998 999
//     state    a  b  c  d  e  f  d                ─────skip─────▶    d   e   f  g ..
//                       └── period ──┘
//
// A simulation of lanes is a function of its state: where every lane is, what every FIFO holds, what is on the wires
// and how far from its end, with slices and times relative to some lane's slice and to now. (A lane that has finished
// all its slices is only marked as done: it no longer acts or blocks anything.) If a state recurs, so does everything
// that followed, as long as slices keep their length; so whole periods are skipped and the clock is advanced. States
// are compared after rounding, so a skip is as exact as the rounding; a state that never recurs costs only time, not
// accuracy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace syntony {

class SteadyState {
 public:
  struct Skip {  // what may be skipped
    std::int64_t slices;
    double seconds;
  };

  /// `boundaries`: the slices at which message lengths change, ascending.
  explicit SteadyState(std::vector<std::int64_t> boundaries) : boundaries_(std::move(boundaries)) {}

  /// base             the slice that `state` is relative to
  /// lowest, highest  the smallest and largest current slice of all lanes that are not done
  std::optional<Skip> skip(std::span<const std::int64_t> state, std::int64_t base, std::int64_t lowest,
                           std::int64_t highest, double now);

 private:
  using Digest = std::pair<std::uint64_t, std::uint64_t>;
  struct Seen {
    std::int64_t base;
    double time;
  };

  std::vector<std::int64_t> boundaries_;
  std::size_t phase_ = 0;
  std::map<Digest, Seen> seen_;
};

}  // namespace syntony

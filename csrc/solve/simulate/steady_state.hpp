// Steady states: what a simulation has lived through once, it need not live through again.
//
//     slice    0  1  2  3  4  5  6  7  8  9 10 11 ..                 997 998 999
//     state    a  b  c  d  e  f  d                ─────skip─────▶    d   e   f  g ..
//                       └── period ──┘
//
// A simulation of lanes is a function of its state: where every lane is, what lies in every FIFO, what is on the wires
// and how far from its end; slices and times counted from some lane's slice and from now. (Of a lane that is done with
// all its slices only that: it acts no more and keeps nobody waiting.) Where a state comes back, so does all that
// followed, for as long as slices stay equally long; so whole periods are skipped there, and the clock moved on.
// States are compared after rounding, so a skip is as exact as the rounding; a state that never comes back costs a skip
// but no truth.
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
  struct Skip {  // what may be left out
    std::int64_t slices;
    double seconds;
  };

  /// `boundaries`: the slices at which lengths of messages change, ascending.
  explicit SteadyState(std::vector<std::int64_t> boundaries) : boundaries_(std::move(boundaries)) {}

  /// base             the slice from which `state` counts
  /// lowest, highest  the least and the greatest slice that any lane is in that is not done
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

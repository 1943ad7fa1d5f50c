// Repairs spanning trees after links failed or slowed down: intact parts stay, the rest is reattached.
//
//       root                     root                  A tree that lost a link falls apart. What still hangs on the
//       ╱  ╲                     ╱  ╲                  root is reached; of the rest, any receiver may be attached to a
//      a    b        a ╳ c      a    b                 reached one if the links have room, and takes along everything
//      │    │        ════▶           │ ╲               below it. Heads of whole branches are tried first, because
//      c    e                        e  c              their branch stays as it was.
//      │                                │
//      d                                d
//
// A link that is too slow for its load sheds random trees, which are repaired in the same way. Trees use links up to
// `room`, then up to `most`; then they are split so that each part finds room; then they take any link, which sheds
// others in the next round. This is a local search: it guarantees nothing, but loads are counted exactly.
//
// Without existing trees, trees are grown one after another, each receiver attached to the nearest one from which links
// with room lead. A link's room is released in step with the number of trees, so that the last tree finds as much as
// the first. Trees that sum traverse links in reverse and share them with those that spread; if a receiver has only one
// link, the room that its trees will need there is reserved. The result is the round whose fullest link carries least.
#pragma once

#include <cstdint>
#include <span>

#include "solve/trees/forest.hpp"

namespace syntony {

/// Trees over receivers 0 .. receivers - 1 of a network whose other nodes relay. Tree t stands for weight[t] trees from
/// root[t]; its edges are t * (receivers - 1) and the following, each from tail to head over the links
/// route_link[route_offset[e] .. route_offset[e + 1]]; a negative link is lost. Without any edges, the trees are grown.
/// Edges of trees with `backwards` set lead from a link's head to its tail.
struct RegraftRequest {
  std::uint32_t nodes = 0, receivers = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const std::int64_t> room, most;    ///< trees that each link should carry, and may carry at most
  std::span<const std::int64_t> root, weight;
  std::span<const std::uint8_t> backwards;
  std::span<const std::int64_t> tail, head;
  std::span<const std::int64_t> route_offset, route_link;
  std::uint32_t rounds = 0;  ///< maximum rounds of shedding
};

/// The repaired trees, tree t in its place, followed by the parts that were split off. Routes are the request's, then
/// new ones. Throws std::invalid_argument for inconsistent columns, or if a receiver cannot be reached at all.
[[nodiscard]] Forest regraft(const RegraftRequest& request);

}  // namespace syntony

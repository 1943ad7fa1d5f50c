// Mends spanning trees after links were lost or became slower: what still stands stays, the rest is hung anew.
//
//        root                     root                  A tree that lost a link falls apart. What hangs on the root
//        ╱  ╲                     ╱  ╲                  still is reached; of the rest, any receiver may be hung on a
//       a    b        a ╳ c      a    b                 reached one where links have room, and takes along whatever
//       │    │        ════▶           │ ╲               hangs on it. Heads of whole branches are tried first: they
//       c    e                        e  c              leave their branch as it was.
//       │                                │
//       d                                d
//
// A link that is too slow for what it carries sheds trees at random, and they are mended likewise. Trees take room up
// to `room`, then up to `most`; then they are split so that each part finds room; then they take any link, which sheds
// others in the next round. A local search: it proves nothing, but loads are counted exactly.
//
// Where nothing stands yet, trees are grown one after another, each receiver hung on the nearest one that links with
// room lead from. A link's room is given out in step with the number of trees, so that the last finds as much as the
// first. Trees that sum walk against the links, and share them with those that spread; where a receiver has one link
// only, what each of its trees will need there is left free for it. Of all rounds the one is kept whose fullest link
// carries least.
#pragma once

#include <cstdint>
#include <span>

#include "solve/trees/forest.hpp"

namespace syntony {

/// Trees over receivers 0 .. receivers - 1 of a network whose other nodes relay. Tree t stands for weight[t] trees from
/// root[t]; its edges are t * (receivers - 1) and the following, each leading from tail to head over the links
/// route_link[route_offset[e] .. route_offset[e + 1]], of which a negative one is lost. Without any edges the trees are
/// grown. Edges of trees that go `backwards` lead from the link's head to its tail.
struct RegraftRequest {
  std::uint32_t nodes = 0, receivers = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const std::int64_t> room, most;    ///< trees that each link should carry, and may carry at most
  std::span<const std::int64_t> root, weight;
  std::span<const std::uint8_t> backwards;
  std::span<const std::int64_t> tail, head;
  std::span<const std::int64_t> route_offset, route_link;
  std::uint32_t rounds = 0;  ///< of shedding, at most
};

/// The mended trees, tree t in its place; parts that were split off lie behind. Routes are the request's, then new
/// ones. Throws std::invalid_argument for columns that do not fit together, and where a receiver cannot be reached at
/// all.
[[nodiscard]] Forest regraft(const RegraftRequest& request);

}  // namespace syntony

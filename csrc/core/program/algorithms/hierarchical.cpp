#include "core/program/algorithms/hierarchical.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/program/moves/moves.hpp"
#include "core/program/moves/tree.hpp"

namespace syntony {
namespace {

void check(const Boxes& boxes, std::uint32_t ranks) {
  std::vector<bool> seen(ranks, false);
  for (std::size_t box = 0; box < boxes.size(); ++box) {
    const std::string name = "box " + std::to_string(box);
    if (boxes[box].empty()) throw std::invalid_argument(name + " is empty; every box holds at least one rank");
    for (const std::uint32_t rank : boxes[box]) {
      const std::string names_rank = name + " names rank " + std::to_string(rank);
      if (rank >= ranks) {
        throw std::invalid_argument(names_rank + ", but there are " + std::to_string(ranks) + " ranks");
      }
      if (seen[rank]) throw std::invalid_argument(names_rank + ", which already has a box");
      seen[rank] = true;
    }
  }
  const auto missing = std::ranges::find(seen, false);
  if (missing != seen.end()) {
    throw std::invalid_argument("rank " + std::to_string(missing - seen.begin()) + " is in no box");
  }
}

/// The boxes, and the place of each rank.
class Machine {
 public:
  explicit Machine(const Boxes& boxes, std::uint32_t ranks) : boxes_(boxes), box_of_(ranks), place_of_(ranks) {
    for (std::uint32_t box = 0; box < boxes.size(); ++box) {
      for (std::uint32_t place = 0; place < boxes[box].size(); ++place) {
        box_of_[boxes[box][place]] = box;
        place_of_[boxes[box][place]] = place;
      }
    }
  }
  [[nodiscard]] const Boxes& boxes() const { return boxes_; }
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(box_of_.size()); }
  [[nodiscard]] std::uint32_t box_of(std::uint32_t rank) const { return box_of_[rank]; }
  [[nodiscard]] std::uint32_t at(std::size_t box, std::size_t place) const {
    return boxes_[box][place % boxes_[box].size()];
  }
  /// The rank of `box` that corresponds to `rank`; in its own box, the rank itself.
  [[nodiscard]] std::uint32_t counterpart(std::uint32_t rank, std::size_t box) const {
    return at(box, place_of_[rank]);
  }

  /// From `root` to one rank of each other box, and from these to their boxes. Without `leaders`, they are the
  /// counterparts.
  [[nodiscard]] Tree tree_from(std::uint32_t root, bool leaders) const {
    Tree tree{.root = root, .parent = std::vector<std::uint32_t>(ranks(), root)};
    for (std::size_t box = 0; box < boxes_.size(); ++box) {
      if (box == box_of(root)) continue;
      const std::uint32_t head = leaders ? boxes_[box].front() : counterpart(root, box);
      for (const std::uint32_t rank : boxes_[box]) {
        if (rank != head) tree.parent[rank] = head;
      }
    }
    return tree;
  }

 private:
  const Boxes& boxes_;
  std::vector<std::uint32_t> box_of_, place_of_;
};

/// An all_reduce in three phases: inside the boxes, between them, inside again. Part j of the data is owned by place j
/// of every box and cut into `cuts` chunks: chunk j * cuts + k.
class AllReduce {
 public:
  AllReduce(std::string name, const Machine& machine, std::uint32_t cuts)
      : machine_(machine),
        cuts_(cuts),
        chunks_(largest_box(machine) * cuts),
        builder_(std::move(name), Collective::all_reduce, machine.ranks(), 0,
                 equal_chunks(Collective::all_reduce, machine.ranks(), chunks_)) {}

  /// Inside every box: sum at the owner. A box of one already has its sum, in the input.
  void sum_inside() {
    std::vector<Sum> sums;
    for (std::uint32_t box = 0; box < boxes(); ++box) {
      auto& held = held_.emplace_back();
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::uint32_t at = owner(box, chunk);
        if (machine_.boxes()[box].size() == 1) {
          held.push_back(builder_.input(at, chunk));
          continue;
        }
        held.push_back(builder_.output(at, chunk));
        sums.push_back({.owner = at, .chunk = chunk, .dst = held.back(), .parts = {}});
        for (const std::uint32_t rank : machine_.boxes()[box]) {
          sums.back().parts.push_back({rank, builder_.input(rank, chunk)});
        }
      }
    }
    sum_all(builder_, sums);
  }

  /// Between the boxes: a ring of the owners per part. Chunk k of a part goes from box k+1 to box k, then round again.
  void ring_between() {
    for (std::uint32_t hop = 1; hop + 1 < 2 * boxes(); ++hop) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::uint32_t home = chunk % cuts_;
        const std::uint32_t from = (home + hop) % boxes(), to = (from + 1) % boxes();
        const std::uint32_t receiver = owner(to, chunk);
        const Slot sum = builder_.output(receiver, chunk);
        if (hop < boxes()) {
          builder_.transfer_reduce(owner(from, chunk), held_[from][chunk], receiver, sum, held_[to][chunk]);
        } else {
          builder_.transfer(owner(from, chunk), held_[from][chunk], receiver, sum, 1);
        }
        held_[to][chunk] = sum;
      }
    }
  }

  /// Between the boxes: each owner sends its box's sum to all its counterparts, and all add in the same order.
  void direct_between() {
    std::vector<std::vector<std::vector<Slot>>> landed(boxes(), std::vector<std::vector<Slot>>(chunks_));
    for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      for (std::uint32_t to = 0; to < boxes(); ++to) landed[to][chunk].resize(boxes());
    }
    for (std::uint32_t shift = 1; shift < boxes(); ++shift) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        for (std::uint32_t from = 0; from < boxes(); ++from) {
          const std::uint32_t to = (from + shift) % boxes();
          landed[to][chunk][from] = builder_.scratch(owner(to, chunk), chunk);
          builder_.transfer(owner(from, chunk), held_[from][chunk], owner(to, chunk), landed[to][chunk][from]);
        }
      }
    }
    for (std::uint32_t box = 0; boxes() > 1 && box < boxes(); ++box) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        landed[box][chunk][box] = held_[box][chunk];
        held_[box][chunk] = builder_.output(owner(box, chunk), chunk);
        builder_.reduce(owner(box, chunk), held_[box][chunk], landed[box][chunk]);
      }
    }
  }

  /// Inside every box: the owner sends the sum to the others.
  Program hand_out() {
    std::vector<Move> moves;
    for (std::uint32_t box = 0; box < boxes(); ++box) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::uint32_t at = owner(box, chunk);
        for (const std::uint32_t rank : machine_.boxes()[box]) {
          const Slot sum = builder_.output(rank, chunk);
          if (rank != at || held_[box][chunk] != sum) moves.push_back({{at, held_[box][chunk]}, {rank, sum}});
        }
      }
    }
    move_all(builder_, std::move(moves), 1);
    return builder_.finish();
  }

 private:
  static std::uint32_t largest_box(const Machine& machine) {
    std::size_t largest = 0;
    for (const auto& box : machine.boxes()) largest = std::max(largest, box.size());
    return static_cast<std::uint32_t>(largest);
  }
  [[nodiscard]] std::uint32_t boxes() const { return static_cast<std::uint32_t>(machine_.boxes().size()); }
  [[nodiscard]] std::uint32_t owner(std::uint32_t box, std::uint32_t chunk) const {
    return machine_.at(box, chunk / cuts_);
  }

  const Machine& machine_;
  std::uint32_t cuts_, chunks_;
  ProgramBuilder builder_;
  std::vector<std::vector<Slot>> held_;  // [box][chunk]: the box's sum, at its owner
};

std::vector<Flow> flows_of_all(const Machine& machine) {
  std::vector<Flow> flows;
  for (std::uint32_t rank = 0; rank < machine.ranks(); ++rank) {
    flows.push_back({.chunk = rank, .tree = machine.tree_from(rank, false)});
  }
  return flows;
}

/// To another box first: all that goes there leaves at once, in as few packets as it fits. What is handed on inside
/// that box leaves before what is not.
std::vector<Route> all_to_all_routes(const Machine& machine) {
  const std::uint32_t ranks = machine.ranks();
  std::vector<Route> routes;
  for (std::uint32_t shift = 0; shift < ranks; ++shift) {
    for (std::uint32_t from = 0; from < ranks; ++from) {
      const std::uint32_t to = (from + shift) % ranks;
      const std::uint32_t via = machine.counterpart(from, machine.box_of(to));
      std::vector<std::uint32_t> path{from};
      if (via != from) path.push_back(via);
      if (to != path.back()) path.push_back(to);
      routes.push_back({.chunk = from * ranks + to, .path = std::move(path)});
    }
  }
  std::ranges::stable_sort(routes, std::greater<>{}, [&machine](const Route& route) {
    return std::pair(route.path.size(), machine.box_of(route.path.front()) != machine.box_of(route.path.back()));
  });
  return routes;
}

std::vector<Route> rooted_routes(const Machine& machine, std::uint32_t root, bool towards_root) {
  const Tree tree = machine.tree_from(root, true);
  std::vector<Route> routes;
  for (std::uint32_t rank = 0; rank < machine.ranks(); ++rank) {
    std::vector<std::uint32_t> path = path_to_root(tree, rank);
    if (!towards_root) std::ranges::reverse(path);
    routes.push_back({.chunk = rank, .path = std::move(path)});
  }
  return routes;
}

}  // namespace

Boxes boxes_for(std::uint32_t ranks) {
  std::uint32_t count = 1;
  while ((count + 1) * (count + 1) <= ranks) ++count;
  Boxes boxes(count);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    boxes[std::uint64_t{rank} * count / ranks].push_back(rank);
  }
  return boxes;
}

Program hierarchical(Collective collective, std::uint32_t ranks, std::uint32_t root, const Boxes& boxes) {
  check(boxes, ranks);
  const Machine machine(boxes, ranks);
  if (collective == Collective::all_reduce) {
    AllReduce all_reduce("hierarchical", machine, static_cast<std::uint32_t>(boxes.size()));
    all_reduce.sum_inside();
    all_reduce.ring_between();
    return all_reduce.hand_out();
  }
  ProgramBuilder builder("hierarchical", collective, ranks, root, equal_chunks(collective, ranks, 1));
  switch (collective) {
    case Collective::all_reduce:
      break;
    case Collective::all_gather:
      flood_all(builder, flows_of_all(machine));
      break;
    case Collective::reduce_scatter:
      sum_up_all(builder, flows_of_all(machine));
      break;
    case Collective::all_to_all:
      relay_all(builder, all_to_all_routes(machine));
      break;
    case Collective::broadcast:
      flood_all(builder, std::vector<Flow>{{0, machine.tree_from(root, true)}});
      break;
    case Collective::reduce:
      sum_up_all(builder, std::vector<Flow>{{0, machine.tree_from(root, true)}});
      break;
    case Collective::gather:
    case Collective::scatter:
      relay_all(builder, rooted_routes(machine, root, collective == Collective::gather));
      break;
  }
  return builder.finish();
}

Program two_level(std::uint32_t ranks, const Boxes& boxes) {
  check(boxes, ranks);
  const Machine machine(boxes, ranks);
  AllReduce all_reduce("two_level", machine, 1);
  all_reduce.sum_inside();
  all_reduce.direct_between();
  return all_reduce.hand_out();
}

}  // namespace syntony

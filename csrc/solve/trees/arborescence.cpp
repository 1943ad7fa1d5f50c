#include "solve/trees/arborescence.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace syntony {
namespace {

enum State : std::uint8_t { kUnseen, kWalked, kReached };

}  // namespace

Arborescences::Arborescences(std::uint32_t nodes, std::span<const std::int32_t> tails,
                             std::span<const std::int32_t> heads)
    : nodes_(nodes), waiting_(tails.size()) {
  static_cast<void>(group_by_tail(nodes, tails, heads));  // reports any arc that does not end at a node
  tail_.assign(tails.begin(), tails.end());
  head_.assign(heads.begin(), heads.end());
}

std::span<const std::uint32_t> Arborescences::from(Node root, std::span<const double> costs) {
  if (root >= nodes_ || costs.size() != tail_.size()) {
    throw std::invalid_argument("a cheapest tree needs a root among the nodes, and a cost per arc");
  }
  heap_.assign(nodes_, kNone);
  enter_.assign(nodes_, kNone);
  cycle_.assign(nodes_, kNone);
  shortcut_.assign(nodes_, kNone);
  state_.assign(nodes_, kUnseen);
  for (std::uint32_t arc = 0; arc < tail_.size(); ++arc) {
    if (head_[arc] == root) continue;
    waiting_[arc] = {.cost = costs[arc]};
    heap_[head_[arc]] = merged(heap_[head_[arc]], arc);
  }
  state_[root] = kReached;
  std::vector<Node> walk;
  for (Node start = 0; start < nodes_; ++start) {
    if (state_[whole_of(start)] != kUnseen) continue;
    walk.assign(1, start);
    state_[start] = kWalked;
    while (true) {
      const std::uint32_t arc = take_cheapest(walk.back());
      const Node before = whole_of(tail_[arc]);
      if (state_[before] == kReached) break;
      if (state_[before] == kWalked) {
        walk.push_back(contract(walk, before));
      } else {
        walk.push_back(before);
      }
      state_[walk.back()] = kWalked;
    }
    for (const Node whole : walk) state_[whole] = kReached;
  }
  for (Node whole = static_cast<Node>(heap_.size()); whole-- > nodes_;) {
    Node member = head_[enter_[whole]];
    while (cycle_[member] != whole) member = cycle_[member];
    enter_[member] = enter_[whole];
  }
  return std::span(enter_).first(nodes_);
}

std::uint32_t Arborescences::merged(std::uint32_t one, std::uint32_t other) {
  if (one == kNone) return other;
  if (other == kNone) return one;
  if (waiting_[other].cost < waiting_[one].cost) std::swap(one, other);
  pass_on_rebate(one);
  Waiting& top = waiting_[one];
  top.right = merged(top.right, other);
  const auto rank = [this](std::uint32_t arc) { return arc == kNone ? 0 : waiting_[arc].rank; };
  if (rank(top.left) < rank(top.right)) std::swap(top.left, top.right);
  top.rank = rank(top.right) + 1;
  return one;
}

void Arborescences::pass_on_rebate(std::uint32_t arc) {
  Waiting& top = waiting_[arc];
  for (const std::uint32_t below : {top.left, top.right}) {
    if (below == kNone) continue;
    waiting_[below].cost -= top.rebate;
    waiting_[below].rebate += top.rebate;
  }
  top.rebate = 0;
}

Node Arborescences::whole_of(Node node) {
  while (shortcut_[node] != kNone) {
    if (shortcut_[shortcut_[node]] != kNone) shortcut_[node] = shortcut_[shortcut_[node]];
    node = shortcut_[node];
  }
  return node;
}

std::uint32_t Arborescences::take_cheapest(Node whole) {
  while (heap_[whole] != kNone) {
    const std::uint32_t arc = heap_[whole];
    pass_on_rebate(arc);
    heap_[whole] = merged(waiting_[arc].left, waiting_[arc].right);
    if (whole_of(tail_[arc]) == whole) continue;
    if (heap_[whole] != kNone) {
      waiting_[heap_[whole]].cost -= waiting_[arc].cost;
      waiting_[heap_[whole]].rebate += waiting_[arc].cost;
    }
    enter_[whole] = arc;
    return arc;
  }
  throw std::invalid_argument("no tree: a node cannot be reached from the root");
}

Node Arborescences::contract(std::vector<Node>& walk, Node last) {
  const auto cycle = static_cast<Node>(heap_.size());
  std::uint32_t heap = kNone;
  Node member = kNone;
  do {
    member = walk.back();
    walk.pop_back();
    heap = merged(heap, heap_[member]);
    cycle_[member] = shortcut_[member] = cycle;
  } while (member != last);
  heap_.push_back(heap);
  enter_.push_back(kNone);
  cycle_.push_back(kNone);
  shortcut_.push_back(kNone);
  state_.push_back(kUnseen);
  return cycle;
}

}  // namespace syntony

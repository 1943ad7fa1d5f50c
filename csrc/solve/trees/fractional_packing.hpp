// Packs spanning trees of any weights, better the longer it runs: multiplicative weights, as Blink does it (Wang et
// al., MLSys'20, section 3; Garg and Koenemann 1998, Fleischer 2000).
//
// Links have lengths that grow with what they carry. Again and again every root sends its share along the tree that is
// shortest now, so trees evade what is crowded:
//
//      length of a link  =  exp(rate * load / capacity) / capacity          rate ~ sqrt(log(links) / phases)
//
// After P phases the weights over P, divided by what the busiest link then has too much, are a packing. Lengths prove
// how good it is: whatever the packing, the capacities' worth is at least that of the cheapest trees times their
// weights. `cheapest` tells that number for any lengths, exactly for whole ones.
//
// Nodes that receive nothing only pass messages on: an edge of a tree is a link, or a shortest path over such relays.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "solve/graph/adjacency.hpp"
#include "solve/trees/arborescence.hpp"
#include "solve/trees/forest.hpp"

namespace syntony {

/// A network whose nodes 0 .. owed.size() - 1 are receivers and the rest relays. Receiver r is the root of trees of
/// weight owed[r] together; where that fits the capacities just so, a phase loads the busiest link by its capacity.
struct PackingRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const double> capacities;
  std::span<const double> owed;
};

class FractionalPacking {
 public:
  /// Throws std::invalid_argument for a link that ends at no node, or whose capacity is not positive.
  explicit FractionalPacking(const PackingRequest& request);

  /// Runs so many phases more, or until so many seconds have passed or so many different trees are known; at least one
  /// turn of every root. Whether all phases were run. Throws std::invalid_argument where a root does not reach all.
  bool run(std::uint64_t phases, double seconds, std::uint64_t most_trees);

  /// Shortest trees of all roots under these lengths of links, each times what its root owes. The trees are known from
  /// then on, with no weight.
  double cheapest(std::span<const double> lengths);

  /// All trees found, each once (multiplicity 1).
  [[nodiscard]] Forest forest() const;
  /// Of each tree, over all phases.
  [[nodiscard]] std::vector<double> weights() const { return weights_; }
  /// Lengths of links, averaged over the phases: the best that is known to prove something with.
  [[nodiscard]] std::vector<double> lengths() const { return mean_lengths_; }

 private:
  /// Which way a message can go from receiver to receiver: its own link, or over relays.
  struct Wire {
    Node tail, head;
    std::uint32_t link;  ///< kRelayed: the shortest path
  };

  static constexpr std::uint32_t kRelayed = ~std::uint32_t{0};

  void find_wires();
  void price();
  void price_paths(Node receiver);
  [[nodiscard]] std::uint32_t route_of(const Wire& wire);
  void turn(Node root);
  void set_lengths();
  /// As `tree_number_` names trees: under the costs of now.
  [[nodiscard]] std::vector<std::uint32_t> cheapest_tree(Node root);
  void keep(std::vector<std::uint32_t> tree, double weight);

  std::uint32_t nodes_, receivers_;
  std::vector<Node> tail_, head_;
  std::vector<double> capacity_, owed_;
  Adjacency leaving_;
  std::vector<Wire> wires_;
  std::vector<Node> relayed_;                     ///< receivers from which links lead to relays
  std::vector<std::vector<double>> distance_;     ///< of relayed_[i] to every node, over relays
  std::vector<std::vector<std::uint32_t>> last_;  ///< and the last link there
  std::vector<std::uint32_t> relayed_place_;      ///< by receiver: where in `relayed_`

  double phases_ = 0, rate_ = 1;
  std::vector<double> load_, length_, mean_lengths_;  ///< by link
  std::vector<double> cost_;                          ///< by wire
  Arborescences trees_;

  std::map<std::vector<std::uint32_t>, std::uint32_t> route_number_;
  std::vector<std::vector<std::uint32_t>> routes_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> tree_number_;  ///< root, then the route into every other receiver
  std::vector<const std::vector<std::uint32_t>*> kept_;
  std::vector<double> weights_;
};

}  // namespace syntony

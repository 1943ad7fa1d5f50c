// Packs spanning trees of any weights, better the longer it runs: multiplicative weights, as in Blink (Wang et al.,
// MLSys'20, section 3; Garg and Koenemann 1998, Fleischer 2000).
//
// Links have lengths that grow with their load. Repeatedly, every root sends its share along the currently shortest
// tree, so trees evade crowded links:
//
//      length of a link  =  exp(rate * load / capacity) / capacity          rate ~ sqrt(log(links) / phases)
//
// After P phases, the weights over P, divided by the overload of the busiest link, are a packing. Lengths prove its
// quality: for any packing, the capacities times their lengths are at least the cheapest trees times their weights.
// `cheapest` returns that number for any lengths, exactly for integers.
//
// Nodes that receive nothing only relay: an edge of a tree is a link, or a shortest path over such relays.
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
/// total weight owed[r]; if these just fit the capacities, a phase loads the busiest link by its capacity.
struct PackingRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const double> capacities;
  std::span<const double> owed;
};

class FractionalPacking {
 public:
  /// Throws std::invalid_argument for a link that does not end at a node or whose capacity is not positive.
  explicit FractionalPacking(const PackingRequest& request);

  /// Runs `phases` more phases, or until `seconds` have passed or `most_trees` different trees are known; at least one
  /// turn of every root. True if all phases were run. Throws std::invalid_argument if a root does not reach all
  /// receivers.
  bool run(std::uint64_t phases, double seconds, std::uint64_t most_trees);

  /// The cost of the shortest trees of all roots under these link lengths, each times what its root owes. The trees are
  /// then known, with weight zero.
  double cheapest(std::span<const double> lengths);

  /// All trees found, each once (multiplicity 1).
  [[nodiscard]] Forest forest() const;
  /// The weight of each tree, over all phases.
  [[nodiscard]] std::vector<double> weights() const { return weights_; }
  /// Lengths of links, averaged over the phases: the best ones known for a proof.
  [[nodiscard]] std::vector<double> lengths() const { return mean_lengths_; }

 private:
  /// How a message can go from receiver to receiver: by a direct link, or over relays.
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
  /// The cheapest tree under current costs, named as in `tree_number_`.
  [[nodiscard]] std::vector<std::uint32_t> cheapest_tree(Node root);
  void keep(std::vector<std::uint32_t> tree, double weight);

  std::uint32_t nodes_, receivers_;
  std::vector<Node> tail_, head_;
  std::vector<double> capacity_, owed_;
  Adjacency leaving_;
  std::vector<Wire> wires_;
  std::vector<Node> relayed_;                     ///< receivers from which links lead to relays
  std::vector<std::vector<double>> distance_;     ///< of relayed_[i] to every node, over relays
  std::vector<std::vector<std::uint32_t>> last_;  ///< and the last link on the way there
  std::vector<std::uint32_t> relayed_place_;      ///< by receiver: its index in `relayed_`

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

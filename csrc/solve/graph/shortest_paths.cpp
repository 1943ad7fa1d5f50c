#include "solve/graph/shortest_paths.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace syntony {

ShortestPaths::ShortestPaths(std::uint32_t nodes, std::span<const std::int32_t> tails,
                             std::span<const std::int32_t> heads, std::span<const double> lengths)
    : distance_(nodes) {
  if (lengths.size() != tails.size()) {
    throw std::invalid_argument(std::to_string(lengths.size()) + " lengths for " + std::to_string(tails.size()) +
                                " arcs");
  }
  Adjacency grouped = group_by_tail(nodes, tails, heads);
  first_ = std::move(grouped.first);
  head_.reserve(tails.size());
  length_.reserve(tails.size());
  for (const std::uint32_t arc : grouped.arc) {
    if (!(lengths[arc] >= 0)) {
      throw std::invalid_argument("arc " + std::to_string(arc) + " has length " + std::to_string(lengths[arc]) +
                                  "; it must not be negative");
    }
    head_.push_back(static_cast<Node>(heads[arc]));
    length_.push_back(lengths[arc]);
  }
}

std::span<const double> ShortestPaths::from(Node source) {
  if (source >= nodes()) {
    throw std::invalid_argument("node " + std::to_string(source) + " does not exist; there are " +
                                std::to_string(nodes()));
  }
  std::ranges::fill(distance_, kUnreachable);
  distance_[source] = 0;
  buckets_[0].push_back(source);
  std::vector<Node> bucket;
  while (!buckets_.empty()) {
    auto nearest = buckets_.extract(buckets_.begin());
    const double here = nearest.key();
    bucket.swap(nearest.mapped());
    for (std::size_t next = 0; next < bucket.size(); ++next) {  // the bucket grows: arcs of length zero
      const Node node = bucket[next];
      if (distance_[node] < here) continue;
      for (std::uint32_t place = first_[node]; place < first_[node + 1]; ++place) {
        const double through = here + length_[place];
        if (!(through < distance_[head_[place]])) continue;
        distance_[head_[place]] = through;
        (through == here ? bucket : buckets_[through]).push_back(head_[place]);
      }
    }
    bucket.clear();
  }
  return distance_;
}

}  // namespace syntony

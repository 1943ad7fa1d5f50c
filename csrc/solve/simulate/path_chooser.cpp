#include "solve/simulate/path_chooser.hpp"

#include <algorithm>

namespace syntony {
namespace {

/// One crossing per link, with the weights of all, each times `share`.
void merge(std::vector<Crossing>& crossings, double share) {
  std::ranges::stable_sort(crossings, {}, &Crossing::link);
  std::size_t kept = 0;
  for (const Crossing& crossing : crossings) {
    if (kept > 0 && crossings[kept - 1].link == crossing.link) {
      crossings[kept - 1].weight += crossing.weight;
    } else {
      crossings[kept++] = crossing;
    }
  }
  crossings.resize(kept);
  for (Crossing& crossing : crossings) crossing.weight *= share;
}

}  // namespace

PathChooser::PathChooser(const Flows& flows)
    : flows_(flows), of_path_(flows.path_offset.size() - 1), of_set_(flows.set_offset.size() - 1) {
  const auto asks = static_cast<std::uint8_t>(PathPolicy::least_loaded);
  if (std::ranges::find(flows.policy, asks) != flows.policy.end()) backlog_.resize(flows.capacity.size());
}

std::int32_t PathChooser::choose(std::uint32_t flow) {
  const auto set = static_cast<std::size_t>(flows_.set[flow]);
  const std::int64_t first = flows_.set_offset[set], end = flows_.set_offset[set + 1];
  std::int64_t chosen = first;
  switch (static_cast<PathPolicy>(flows_.policy[flow])) {
    case PathPolicy::fixed:
      break;
    case PathPolicy::spray:
      chosen = end - first > 1 ? -1 : first;
      break;
    case PathPolicy::least_loaded: {
      Load least = load(first);
      for (std::int64_t path = first + 1; path < end; ++path) {
        const Load mine = load(path);
        if (mine.clearly_less_than(least)) chosen = path, least = mine;
      }
      break;
    }
  }
  const auto path = static_cast<std::int32_t>(chosen);
  if (!backlog_.empty()) {
    for (const Crossing& crossing : crossings(flow, path)) {
      backlog_[crossing.link].bytes += flows_.bytes[flow] * crossing.weight;
      ++backlog_[crossing.link].flows;
    }
  }
  return path;
}

std::span<const Crossing> PathChooser::crossings(std::uint32_t flow, std::int32_t path) {
  const auto set = static_cast<std::size_t>(flows_.set[flow]);
  std::vector<Crossing>& found = path < 0 ? of_set_[set] : of_path_[static_cast<std::size_t>(path)];
  if (!found.empty()) return found;
  const std::int64_t first = path < 0 ? flows_.set_offset[set] : path;
  const std::int64_t end = path < 0 ? flows_.set_offset[set + 1] : path + 1;
  const auto begin_hop = static_cast<std::size_t>(flows_.path_offset[static_cast<std::size_t>(first)]);
  const auto end_hop = static_cast<std::size_t>(flows_.path_offset[static_cast<std::size_t>(end)]);
  for (std::size_t hop = begin_hop; hop < end_hop; ++hop) {
    found.push_back({static_cast<std::uint32_t>(flows_.link[hop]), flows_.weight[hop]});
  }
  merge(found, 1.0 / static_cast<double>(end - first));
  return found;
}

void PathChooser::leave(std::uint32_t flow, std::int32_t path) {
  if (backlog_.empty()) return;
  for (const Crossing& crossing : crossings(flow, path)) {
    Backlog& backlog = backlog_[crossing.link];
    // An idle link has nothing to do, whatever rounding says.
    backlog.bytes = --backlog.flows == 0 ? 0 : backlog.bytes - flows_.bytes[flow] * crossing.weight;
  }
}

/// What differs by rounding only is equal.
bool PathChooser::Load::clearly_less_than(const Load& other) const {
  constexpr double kSame = 1 - 1e-9;
  if (worst < other.worst * kSame) return true;
  return worst * kSame <= other.worst && sum < other.sum * kSame;
}

PathChooser::Load PathChooser::load(std::int64_t path) const {
  Load found;
  const auto end = static_cast<std::size_t>(flows_.path_offset[static_cast<std::size_t>(path) + 1]);
  for (auto hop = static_cast<std::size_t>(flows_.path_offset[static_cast<std::size_t>(path)]); hop < end; ++hop) {
    const auto link = static_cast<std::size_t>(flows_.link[hop]);
    const double seconds = backlog_[link].bytes / flows_.capacity[link];
    found.worst = std::max(found.worst, seconds);
    found.sum += seconds;
  }
  return found;
}

}  // namespace syntony

#include "solve/simulate/links/path_chooser.hpp"

#include <algorithm>

namespace syntony {
namespace {

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

/// Combines crossings to one per link, adding the weights, each times `share`.
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

PathChooser::PathChooser(const Paths& paths, std::span<const double> capacity, bool balances)
    : paths_(paths), capacity_(capacity), of_path_(paths.paths()), of_set_(paths.sets()) {
  if (balances) backlog_.resize(capacity.size());
}

std::int32_t PathChooser::choose(std::int32_t set, PathPolicy policy, double bytes) {
  const std::int64_t first = paths_.set_offset[index(set)], end = paths_.set_offset[index(set) + 1];
  std::int64_t chosen = first;
  switch (policy) {
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
    for (const Crossing& crossing : crossings(set, path)) {
      backlog_[crossing.link].bytes += bytes * crossing.weight;
      ++backlog_[crossing.link].messages;
    }
  }
  return path;
}

Way PathChooser::way(std::int32_t set, std::int32_t path) {
  const std::size_t number = path < 0 ? paths_.paths() + index(set) : index(path);
  return {static_cast<std::uint32_t>(number), crossings(set, path)};
}

std::span<const Crossing> PathChooser::crossings(std::int32_t set, std::int32_t path) {
  std::vector<Crossing>& found = path < 0 ? of_set_[index(set)] : of_path_[index(path)];
  if (!found.empty()) return found;
  const std::int64_t first = path < 0 ? paths_.set_offset[index(set)] : path;
  const std::int64_t end = path < 0 ? paths_.set_offset[index(set) + 1] : path + 1;
  for (std::int64_t hop = paths_.path_offset[index(first)]; hop < paths_.path_offset[index(end)]; ++hop) {
    found.push_back({static_cast<std::uint32_t>(paths_.link[index(hop)]), paths_.weight[index(hop)]});
  }
  merge(found, 1.0 / static_cast<double>(end - first));
  return found;
}

void PathChooser::leave(std::int32_t set, std::int32_t path, double bytes) {
  if (backlog_.empty()) return;
  for (const Crossing& crossing : crossings(set, path)) {
    Backlog& backlog = backlog_[crossing.link];
    // An idle link has exactly nothing to do, regardless of rounding.
    backlog.bytes = --backlog.messages == 0 ? 0 : backlog.bytes - bytes * crossing.weight;
  }
}

/// Differences within rounding count as equal.
bool PathChooser::Load::clearly_less_than(const Load& other) const {
  constexpr double kSame = 1 - 1e-9;
  if (worst < other.worst * kSame) return true;
  return worst * kSame <= other.worst && sum < other.sum * kSame;
}

PathChooser::Load PathChooser::load(std::int64_t path) const {
  Load found;
  for (std::int64_t hop = paths_.path_offset[index(path)]; hop < paths_.path_offset[index(path) + 1]; ++hop) {
    const std::size_t link = index(paths_.link[index(hop)]);
    const double seconds = backlog_[link].bytes / capacity_[link];
    found.worst = std::max(found.worst, seconds);
    found.sum += seconds;
  }
  return found;
}

}  // namespace syntony

// PathChooser: which path a message takes when it starts.
//
// least_loaded takes the path whose worst link has the least to do; among equals the one whose links together have the
// least; then the first. What a link has to do is the bytes of all messages that have started on it and not left, per
// byte/s. A sender can count that from what it has posted and what has been completed, as in HPN (Qian et al., SIGCOMM
// 2024), but here it covers the links of the whole path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/simulate/links/fair_share.hpp"
#include "solve/simulate/links/paths.hpp"
#include "solve/simulate/links/wires.hpp"

namespace syntony {

class PathChooser {
 public:
  /// `capacity`: bytes/s of every link; `balances`: whether any message uses PathPolicy::least_loaded. The referenced
  /// data must outlive this.
  PathChooser(const Paths& paths, std::span<const double> capacity, bool balances);

  /// The path of the set for a message that starts, or -1 if it takes all of them.
  [[nodiscard]] std::int32_t choose(std::int32_t set, PathPolicy policy, double bytes);
  /// The links of that choice, each once. Valid until the next call.
  [[nodiscard]] Way way(std::int32_t set, std::int32_t path);
  /// The message has left.
  void leave(std::int32_t set, std::int32_t path, double bytes);

 private:
  struct Load {  // seconds of work for the path's worst link, and for all its links
    double worst = 0, sum = 0;
    [[nodiscard]] bool clearly_less_than(const Load& other) const;
  };
  struct Backlog {  // of a link
    double bytes = 0;
    std::uint32_t messages = 0;
  };

  [[nodiscard]] std::span<const Crossing> crossings(std::int32_t set, std::int32_t path);
  [[nodiscard]] Load load(std::int64_t path) const;

  const Paths& paths_;
  std::span<const double> capacity_;
  std::vector<std::vector<Crossing>> of_path_;  // filled on first use
  std::vector<std::vector<Crossing>> of_set_;
  std::vector<Backlog> backlog_;  // per link; empty if nothing is balanced
};

}  // namespace syntony

// PathChooser: which way a flow takes at the moment it starts.
//
// least_loaded takes the path whose worst link has least to do, and among equals the one whose links together have
// least, then the first. What a link has to do are the bytes of all flows that have started on it and not left, per
// byte/s: what a sender can count that knows what it has posted and what has been completed, in the manner of HPN
// (Qian et al., SIGCOMM 2024), but over the links of the whole path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/simulate/flows.hpp"

namespace syntony {

class PathChooser {
 public:
  explicit PathChooser(const Flows& flows);

  /// The path of a flow that starts, or -1 where it takes all of its set.
  [[nodiscard]] std::int32_t choose(std::uint32_t flow);
  /// The links of that choice, each once. Valid until the next call.
  [[nodiscard]] std::span<const Crossing> crossings(std::uint32_t flow, std::int32_t path);
  /// The flow has left.
  void leave(std::uint32_t flow, std::int32_t path);

 private:
  struct Load {  // seconds that the path's worst link, and all of its links, have to do
    double worst = 0, sum = 0;
    [[nodiscard]] bool clearly_less_than(const Load& other) const;
  };
  struct Backlog {  // of a link
    double bytes = 0;
    std::uint32_t flows = 0;
  };

  [[nodiscard]] Load load(std::int64_t path) const;

  const Flows& flows_;
  std::vector<std::vector<Crossing>> of_path_;  // filled when first asked for
  std::vector<std::vector<Crossing>> of_set_;
  std::vector<Backlog> backlog_;  // per link; empty where no flow asks for it
};

}  // namespace syntony

// The ranks of one host sharing one piece of memory, each a thread of the machine; rank r is thread r.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/shm/shm_segment.hpp"
#include "core/shm/shm_transport.hpp"
#include "model/machine.hpp"

namespace syntony::model {

struct Host {
  Host(std::uint32_t ranks, std::uint32_t depth) {
    StreamShape shape;
    shape.ranks = ranks;
    shape.depth = depth;
    shape.windows = 1;
    shape.slot_bytes = 64;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      members.push_back({.rank = rank, .process = 0, .entrance = {}, .doorbell = std::to_string(rank)});
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      segments.emplace_back(members, rank, UniqueFd(), doorbell, shape, std::chrono::steady_clock::time_point());
      transports.emplace_back(segments.back(), rank);
    }
    processes.assign(ranks, ::getpid());
  }

  /// Like an owner of progress that sleeps immediately (ProgressEngine::sleep).
  template <typename Ready>
  void sleep_until(std::uint32_t rank, Ready ready) {
    while (!ready()) {
      transports[rank].sleeping(true);
      const bool now = ready();
      if (!now) answer();
      transports[rank].sleeping(false);
      if (now) return;
    }
  }
  template <typename Ready>
  void poll_until(Ready ready) {
    while (!ready()) idle();
  }

  std::vector<ShmMember> members;
  Doorbell doorbell;
  std::deque<ShmSegment> segments;
  std::deque<ShmTransport> transports;
  std::vector<pid_t> processes;
};

}  // namespace syntony::model

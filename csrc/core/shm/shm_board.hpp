// The control plane of one host: a board in shared memory on which every rank writes its own line, plus a watch on
// every peer's process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/control.hpp"
#include "core/shm/process_watch.hpp"
#include "core/shm/shm_segment.hpp"

namespace syntony {

class ShmBoard final : public ControlPlane {
 public:
  /// `processes`: pid of each of segment.ranks(), in that order.
  ShmBoard(ShmSegment& segment, std::uint32_t rank, std::span<const pid_t> processes);

  [[nodiscard]] std::span<const std::uint32_t> peers() const override { return peers_; }
  void announce(const Descriptor& started) override;
  void complete(Priority priority, std::uint64_t sequence) override;
  void inquire() override {}  // the board is always up to date
  [[nodiscard]] PeerStatus status(std::uint32_t peer) const override;
  [[nodiscard]] std::size_t ended() const override;
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, Priority priority,
                                                    std::uint64_t sequence) const override;
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, std::uint64_t ordinal) const override;
  void abort(const Abort& reason) override;
  [[nodiscard]] std::optional<Abort> aborted() const override;
  void post(std::uint64_t number, std::string_view message) override;
  [[nodiscard]] std::optional<std::string> posted(std::uint32_t peer, std::uint64_t number) const override;
  void leave() override;
  void progress() override;
  [[nodiscard]] std::span<const int> descriptors() const override { return descriptors_; }

 private:
  struct Peer {
    std::uint32_t rank;
    std::optional<ProcessWatch> process;  // none: a thread of this process
    bool dead = false;
  };
  [[nodiscard]] const Peer& peer(std::uint32_t rank) const;
  [[nodiscard]] PeerStatus::State state(std::uint32_t rank) const;

  ShmSegment& segment_;
  std::uint32_t rank_;
  std::vector<Peer> processes_;
  std::vector<std::uint32_t> peers_;
  std::vector<int> descriptors_;
};

}  // namespace syntony

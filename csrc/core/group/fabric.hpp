// What connects the ranks of one group: how they meet, which transport reaches whom, and the control planes.
//
//     1. everybody publishes: host, pid, a random token, the address of a Unix socket, its processors
//     2. rank 0's token becomes the group's secret, mixed with what else the ranks know (SYNTONY_SECRET, a secret of
//        the bootstrap's or of the parent group); equal hosts become boxes
//     3. each box of several ranks makes a ShmSegment; each pair of ranks in different boxes connects by TCP,
//        for control immediately and for data when the first of the two sends; if data goes by UCX (SYNTONY_TRANSPORT),
//        its ports' addresses have been exchanged before (addresses are published only if there are several boxes)
//     4. a last all_gather: nobody sends before everybody can receive. It carries each rank's metadata
//
// Each step is an agreement (agreement.hpp): if one rank fails it, all ranks learn of it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bootstrap.hpp"
#include "core/control.hpp"
#include "core/frames/port.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/shm/doorbell.hpp"
#include "core/sip_hash.hpp"
#include "core/tcp/meeting/tcp_listener.hpp"
#include "core/transport.hpp"

namespace syntony {

class Fabric {
 public:
  using Boxes = std::vector<std::vector<std::uint32_t>>;

  /// Collective. `doorbell` wakes this process and must outlive this; `metadata` is called once the boxes are known and
  /// returns what to tell the others. Throws Error naming the missing ranks.
  Fabric(Bootstrap& bootstrap, const Doorbell& doorbell, std::chrono::steady_clock::time_point deadline,
         const std::function<std::string(const Boxes&)>& metadata);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  /// Bytes of the longest slice that all its transports take: more than a slot of shape() if all ranks are few and
  /// alone on their hosts. A function of what all ranks know.
  [[nodiscard]] std::uint32_t longest_slice() const { return longest_slice_; }
  /// Data sockets between two ranks, where these are the most; 1 unless slices may be long. Like longest_slice().
  [[nodiscard]] std::size_t sockets() const { return sockets_; }
  /// Network cards of the host that has most, if ranks use several over TCP, each alone on its host; else 1. Like
  /// longest_slice().
  [[nodiscard]] std::size_t rails() const { return rails_; }
  /// Holds the token and group of every frame.
  [[nodiscard]] FrameHeader header() const;
  /// A secret known only to ranks of this group, for groups derived from it.
  [[nodiscard]] std::string secret() const;
  /// SYNTONY_WAIT_WARNING, or 60: after so long without progress a rank says on stderr whom it waits for; 0: never.
  /// Must be equal on all ranks, of which one speaks for all. Throws Error(invalid).
  [[nodiscard]] static std::chrono::seconds wait_warning();
  /// Ranks by host, in order of their lowest rank.
  [[nodiscard]] Boxes boxes() const;
  [[nodiscard]] std::size_t hosts() const { return hosts_; }
  /// True if some ranks share processors: those of a host or of a machine, even of different network namespaces, which
  /// act as hosts, are more than the CPUs that they may use. Known to all ranks.
  [[nodiscard]] bool crowded() const { return crowded_; }
  /// What each rank has told the others, by rank; empty if nobody had anything to tell.
  [[nodiscard]] const std::vector<std::string>& metadata() const { return metadata_; }
  /// "rank 3 (process 4711 on node7)"
  [[nodiscard]] std::string name_of_rank(std::uint32_t rank) const;

  [[nodiscard]] std::span<Transport* const> transports() const { return by_peer_; }  // by rank; null for self
  [[nodiscard]] std::span<const std::unique_ptr<Transport>> owned_transports() const { return transports_; }
  [[nodiscard]] std::span<const std::unique_ptr<ControlPlane>> planes() const { return planes_; }
  /// Where all ranks of the group meet in shared memory; null if they are on several hosts or there is only one rank.
  /// All operations of one priority go through the same one.
  [[nodiscard]] class SharedRounds* shared_rounds(Priority priority) const {
    return shared_rounds_[index_of(priority)].get();
  }
  /// Nanoseconds to add to nanoseconds_now() to get rank 0's, found out while the group works (core/tcp/tcp_clock.cpp).
  /// Null if all ranks are on one host, or nothing is recorded.
  [[nodiscard]] const std::shared_ptr<const std::atomic<std::int64_t>>& clock_offset() const { return clock_offset_; }
  /// What the system refused to this rank while it connected to others, or null.
  [[nodiscard]] const Error* refused() const;
  [[nodiscard]] std::vector<int> data_descriptors() const;
  [[nodiscard]] std::vector<int> control_descriptors() const;

 private:
  /// A rank as it introduced itself; the texts point into its introduction.
  struct Member {
    pid_t process = 0;
    Token token{};
    std::string_view entrance;
    std::string_view doorbell;
  };

  /// What carries data between hosts, apart from TCP.
  struct Wires {
    std::shared_ptr<Port> port;          // null: data goes by TCP
    std::vector<std::string> addresses;  // by rank
  };

  [[nodiscard]] Wires choose_wires(Bootstrap& bootstrap) const;
  /// The introductions of all ranks (`entrance`: where this rank listens), and what they mean, with the ranks of this
  /// host.
  [[nodiscard]] std::vector<std::string> introduce(Bootstrap& bootstrap, const Doorbell& doorbell, UniqueFd& entrance);
  [[nodiscard]] std::vector<struct ShmMember> understand(std::span<const std::string> introductions,
                                                         const SipKey& known);
  void meet_on_host(const std::vector<ShmMember>& box, UniqueFd entrance, const Doorbell& doorbell,
                    std::chrono::steady_clock::time_point deadline);
  void meet_across_hosts(TcpListener listener, const TcpOptions& options, const std::vector<std::string>& published,
                         Wires wires, std::chrono::steady_clock::time_point deadline);

  std::uint32_t rank_;
  std::uint32_t size_;
  StreamShape shape_;
  std::uint32_t longest_slice_ = 0;
  std::size_t sockets_ = 1;
  std::size_t rails_ = 1;
  Token token_{};  // never sent over the network
  std::size_t hosts_ = 0;
  bool crowded_ = false;
  std::vector<std::uint32_t> box_of_;  // by rank
  std::vector<std::string> host_names_;
  std::vector<std::pair<pid_t, std::uint32_t>> processes_;  // by rank: its process, and on which of these hosts
  std::vector<std::string> metadata_;                       // by rank
  std::unique_ptr<class ShmSegment> segment_;
  std::unique_ptr<class TcpMeeting> meeting_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::array<std::unique_ptr<SharedRounds>, kPriorities> shared_rounds_;
  std::vector<std::unique_ptr<ControlPlane>> planes_;
  std::shared_ptr<const std::atomic<std::int64_t>> clock_offset_;
  std::vector<Transport*> by_peer_;
};

}  // namespace syntony

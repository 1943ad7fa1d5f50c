// Aggregator: a summing switch in software. Workers stream packets into its slots; when every worker's packet of a slot
// has arrived, the sum goes back to all of them, and a worker answers it with its next packet:
//
//   worker 0 ── 7 ─ 6 ─ 5 ──▶ ┌ slot: 5 │ 5 │   ┐                   one that is not the root of its job sends its sums
//   worker 1 ──── 6 ─ 5 ────▶ │ slot: 6 │ 6 │   │ ── 4 ──▶ all      to the one above it, as a worker would, and hands
//   worker 2 ────────── 5 ──▶ └ slot: 7 │   │   ┘   workers         down what comes back
//
// The protocol is Sapio et al.'s (SwitchML, NSDI'21, section 3): packets may be lost anywhere, and workers, which alone
// have timers, ask for them. An aggregator answers with the sum if it knows it, else that it wants the part (again), or
// that it waits for others' parts; it may also ask the one above it. Sums are made in rank order of the children, so
// all workers and all runs get the same bits. The path upwards belongs to the job, not to the aggregator: each Hello
// names the aggregator above.
//
// Slots belong to one job, or are shared by all jobs (slots.hpp): then an aggregator keeps no sums and guarantees
// nothing. A packet that finds its slot taken, or comes again, goes on to the one above, part by part, and the root, a
// server with slots for each job, adds what the others could not, in the order in which they would have.
//
// One thread, one epoll. A worker that dies, stalls, disagrees or sends invalid messages ends its job: the others are
// told which one it was, up and down the tree.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/in_network/aggregation_wire.hpp"
#include "core/in_network/datagrams.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "emulation/aggregator/slots.hpp"

namespace syntony {

struct AggregatorOptions {
  std::string listen = "127.0.0.1:0";     // port 0: any free port
  std::size_t slots = 256;                // of all tenants together
  std::size_t slot_bytes = kPacketBytes;  // a multiple of 8
  std::size_t tenants = 1;                // concurrent jobs, counted once all their workers have joined
  bool on_arrival = false;                // parts are added on arrival, not in rank order
  bool shared = false;  // slots belong to the first packet to arrive; otherwise each tenant has its part
  std::vector<NumberFormat> formats{};         // NOLINT(readability-redundant-member-init); empty: all
  std::size_t memory = std::size_t{1} << 30U;  // maximum bytes for the slots of a job
  std::string secret{};  // NOLINT(readability-redundant-member-init); workers must know it; empty: on loopback only
};

class Aggregator {
 public:
  /// Starts listening. Throws Error(invalid) for impossible options, Error(system) if the address cannot be used.
  explicit Aggregator(AggregatorOptions options);
  ~Aggregator();
  Aggregator(const Aggregator&) = delete;
  Aggregator& operator=(const Aggregator&) = delete;

  /// Where workers connect, with the port that was assigned.
  [[nodiscard]] TcpAddress address() const { return TcpAddress::local(listener_.get()); }

  /// Serves until `keep_going`, which is asked several times per second, returns false.
  void run(const std::function<bool()>& keep_going);

 private:
  using Clock = std::chrono::steady_clock;
  struct Job;

  /// One end of a connection: to a worker, to an aggregator below (both are children), or to the one above.
  struct Peer {
    UniqueFd socket;
    Token nonce{};  // of its own Challenge, or of the one sent from above
    std::uint64_t token = 0;
    std::string name;  // for messages
    Job* job = nullptr;
    bool above = false;
    bool connected = true;  // false while the one above is being dialed
    bool challenged = false;
    std::uint32_t rank = 0;     // of a child: the lowest rank below it
    std::uint32_t members = 1;  // and how many there are
    TcpAddress place;           // where it receives packets

    std::vector<std::byte> in;
    std::vector<std::byte> out;
    std::optional<std::uint32_t> watched;  // epoll events; none: not registered with epoll yet
    bool closing = false;  // no longer read from; closed once its last messages are sent and it hangs up
    bool closed = false;
    Clock::time_point deadline = Clock::time_point::max();  // for its Hello, or for its end
  };

  /// A job: children whose parts are added together.
  struct Job {
    Token token{};
    std::uint32_t ranks = 1;
    std::uint32_t under = 1;             // ranks below this aggregator
    std::string above;                   // address of the one above
    std::vector<Peer*> children;         // by rank, once all have joined; null: left
    std::vector<std::uint32_t> least;    // their ranks
    std::vector<std::int32_t> child_of;  // by rank of a part; -1: none
    std::uint32_t joined = 0;            // ranks
    bool complete = false;               // all have joined
    Peer* parent = nullptr;
    std::size_t window = 1;
    std::size_t slot_bytes = 0;
    std::size_t capacity = 0;                               // bytes of the largest part; 0: before the welcome
    Slots slots;                                            // its own
    Clock::time_point deadline = Clock::time_point::max();  // for all to join
    std::uint32_t timeout_ms = 0;
  };

  static constexpr std::chrono::milliseconds kQuiet{5};  // minimum interval between requests for a sum to the one above
  static constexpr std::chrono::seconds kPatience{5};    // for a Hello, and for the last messages to be read

  // ---- connections (aggregator.cpp)
  void accept_all();
  void check_deadlines(Clock::time_point now);
  void reap();
  void read_from(Peer& peer);
  void drain(Peer& peer);
  bool take_message(Peer& peer);
  void post(Peer& peer, AggregationFrame::Kind kind, const void* body, std::size_t length);
  void write_to(Peer& peer);
  void watch(Peer& peer);

  // ---- jobs (aggregator_jobs.cpp)
  void greet(Peer& peer, const AggregationHello& hello, const std::string& above);
  [[nodiscard]] std::size_t tenants() const;
  void completed(Job& job);
  void dial(Job& job);
  void introduce(Peer& parent);
  void welcome(Job& job, std::size_t window, std::size_t slot_bytes);
  void take_frame(Peer& peer, const AggregationFrame& frame, const std::byte* body);
  void take_packet(const AggregationPacket& head, const std::byte* payload);
  void take_part(Job& job, std::size_t child, const AggregationPacket& head, const std::byte* payload);
  void take_question(Job& job, std::size_t child, const AggregationPacket& head);
  void take_sum(Job& job, const AggregationPacket& head, const std::byte* payload);
  [[nodiscard]] bool acceptable(Job& job, const AggregationPacket& head);
  void disagree(Job& job, const AggregationPacket& head, const Slot& slot);
  void hand_down(Job& job, const Slot& slot);
  void answer(Job& job, std::size_t child, const AggregationPacket& question, const Slot* slot);
  void hand_up(Job& job, Slot& slot);
  void ask_above(Job& job, Slot& slot);
  void late(Job& job, std::uint64_t sequence);
  void nonsense(Peer& peer);
  void leave(Peer& peer);
  void lost(Peer& peer);
  void fail(Job& job, Error::Kind kind, std::uint32_t rank, const std::string& sentence);
  void refuse(Peer& peer, Error::Kind kind, std::uint32_t rank, const std::string& sentence);
  void end(Job& job);

  // ---- shared slots (aggregator_sharing.cpp)
  void share_part(Job& job, std::size_t child, const AggregationPacket& head, const std::byte* payload);
  void share_sum(Job& job, const AggregationPacket& head, const std::byte* payload);
  void pass_up(Job& job, std::size_t child, AggregationPacket head, const std::byte* payload);
  void give_up(Slot& slot);

  AggregatorOptions options_;
  std::size_t capacity_;  // bytes of a slot's part
  UniqueFd listener_;
  UniqueFd epoll_;
  Datagrams datagrams_;
  SharedSlots shared_;
  std::vector<Datagrams::Message> down_;  // memory for hand_down
  std::list<Peer> peers_;
  std::list<Job> jobs_;
};

}  // namespace syntony

// Aggregator: a switch that adds, in software. Workers stream chunks into its slots; when every worker's chunk of a
// slot has come, the sum goes back to all of them, and a worker answers it with its next chunk:
//
//   worker 0 ── 7 ─ 6 ─ 5 ──▶ ┌ slot: 5 │ 5 │   ┐
//   worker 1 ──── 6 ─ 5 ────▶ │ slot: 6 │ 6 │   │ ── 4 ──▶ all workers
//   worker 2 ────────── 5 ──▶ └ slot: 7 │   │   ┘
//
// The protocol is Sapio et al.'s (SwitchML, NSDI'21, section 3) over a transport that loses nothing: no second version
// of a slot, no retransmission. Sums are made in rank order, so all workers and all runs get the same bits. Jobs have
// their own part of the slots, or take them from a common pool as they come (Lao et al., ATP, NSDI'21): a worker that
// finds no slot is not read from until there is one. That cannot deadlock: workers send their chunks in order, so the
// chunks of a job that have slots are its oldest, and nothing that they wait for stands behind a worker that waits.
//
// One thread, one epoll. A worker that dies, stalls, disagrees or talks nonsense ends its job: the others are told who.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "emulation/aggregator/aggregation_wire.hpp"
#include "emulation/aggregator/slot_pool.hpp"

namespace syntony {

struct AggregatorOptions {
  std::string listen = "127.0.0.1:0";               // port 0: one that is free
  std::size_t slots = 64;                           // of all tenants together
  std::size_t slot_bytes = std::size_t{32} * 1024;  // a multiple of 8
  std::size_t tenants = 1;                          // jobs at once, of those whose workers have all come
  bool shared = false;                              // one pool for all tenants, else a part for each
  std::vector<NumberFormat> formats{};              // NOLINT(readability-redundant-member-init); empty: all
  std::size_t memory = std::size_t{1} << 30U;       // most bytes that the slots of a job may take
  std::string secret{};  // NOLINT(readability-redundant-member-init); workers must know it; empty: on loopback only
};

class Aggregator {
 public:
  /// Listens. Throws Error(invalid) for options that cannot be, Error(system) when the address cannot be used.
  explicit Aggregator(AggregatorOptions options);
  ~Aggregator();
  Aggregator(const Aggregator&) = delete;
  Aggregator& operator=(const Aggregator&) = delete;

  /// Where workers connect, with the port that was given.
  [[nodiscard]] TcpAddress address() const { return TcpAddress::local(listener_.get()); }

  /// Serves until `keep_going`, asked several times per second, says no.
  void run(const std::function<bool()>& keep_going);

 private:
  using Clock = std::chrono::steady_clock;
  struct Job;

  /// A frame on its way out; the sum's slot or the frame's own bytes stay alive with it.
  struct Outgoing {
    AggregationFrame frame;
    std::shared_ptr<Slot> slot;
    std::vector<std::byte> body;

    [[nodiscard]] const std::byte* bytes() const { return slot ? slot->sum.data() : body.data(); }
  };

  struct Worker {
    UniqueFd socket;
    Token nonce{};  // of its Challenge
    std::uint64_t token = 0;
    Job* job = nullptr;
    std::uint32_t rank = 0;
    std::uint32_t operation = 0;  // the last that it began; they count from 1
    bool ahead = false;           // its next frame holds the exponents ahead
    std::uint32_t next = 0;       // its next chunk

    std::array<std::byte, sizeof(AggregationHello)> head{};  // of the frame that is coming in
    AggregationFrame frame;
    std::size_t have = 0;  // bytes of head and body
    std::shared_ptr<Slot> slot;
    AggregationBegin begin;
    bool starved = false;  // its frame waits for a slot

    std::deque<Outgoing> out;
    std::size_t sent = 0;                  // bytes of the first frame that are out
    std::optional<std::uint32_t> watched;  // epoll events; none: not known to epoll yet
    bool closing = false;                  // no longer listened to; closed when its last words are out and it hangs up
    bool closed = false;
    Clock::time_point deadline = Clock::time_point::max();  // for its Hello, or for its end
  };

  /// Workers that add together.
  struct Job {
    std::array<std::uint64_t, 2> token{};
    std::vector<Worker*> workers;  // by rank; null: not here yet, or left
    std::size_t joined = 0;
    std::shared_ptr<SlotPool> pool;
    std::size_t window = 1;
    std::uint32_t operation = 0;  // the newest that somebody began
    std::uint32_t starter = 0;    // who began it first
    AggregationBegin begin;
    AggregationPlan plan;
    std::size_t completed = 0;                            // chunks of it that are summed
    std::map<std::uint32_t, std::shared_ptr<Slot>> open;  // by chunk; kAhead: the exponents ahead
    Clock::time_point deadline = Clock::time_point::max();
  };

  static constexpr std::uint32_t kAhead = 0xffffffff;
  static constexpr std::chrono::seconds kPatience{5};  // for a Hello, and for the last words to be read

  void accept_all();
  void check_deadlines(Clock::time_point now);
  void reap();

  void read_from(Worker& worker);
  void drain(Worker& worker);
  bool receive(Worker& worker, std::byte* to, std::size_t from, std::size_t until);
  bool take_frame(Worker& worker);
  [[nodiscard]] std::size_t tenants() const;
  void greet(Worker& worker, const AggregationHello& hello);
  void begin_operation(Worker& worker);
  bool place_chunk(Worker& worker);
  void finish_chunk(Worker& worker);
  void leave(Worker& worker);
  void lost(Worker& worker);

  void post(Worker& worker, Outgoing message);
  void write_to(Worker& worker);
  void watch(Worker& worker);
  void feed_starved();

  void welcome(Job& job);
  void fail(Job& job, Error::Kind kind, std::uint32_t rank, const std::string& sentence);
  void refuse(Worker& worker, Error::Kind kind, std::uint32_t rank, const std::string& sentence);
  void nonsense(Worker& worker, const std::string& what);
  void end(Job& job);
  [[nodiscard]] std::string told(const Job& job) const;

  AggregatorOptions options_;
  std::size_t capacity_;  // bytes of a slot's part
  UniqueFd listener_;
  UniqueFd epoll_;
  std::shared_ptr<SlotPool> common_;  // of shared slots
  std::list<Worker> workers_;
  std::list<Job> jobs_;
};

}  // namespace syntony

// A worker's end of a job at an aggregator: all_reduce by sending one's own data and receiving the sums.
//
//  slot     0   1   2   3      at most one packet of each is in flight: once a slot's sum has come, its next may go
//  sent     8   9   6   7
//  has      4   5   2   3 ..   6 is late: others go on, until it is its slot's turn again
//
// Slots limit what may be in flight; CongestionWindow finds how much should be.
//
// Lost packets are sent again by the worker, the only one with a timer (Sapio et al., SwitchML, NSDI'21, section 3.5):
// a packet is lost if its sum has not come when the sums of packets sent well after it have, or when nothing has come
// for a while. A lost packet withholds the sum from every rank, so the worker first asks whose part is missing: only
// that one is sent again. In place is safe, because a packet's sum is written only once the packet need not be sent
// again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/in_network/aggregation_ways.hpp"
#include "core/in_network/aggregation_wire.hpp"
#include "core/in_network/congestion_window.hpp"
#include "core/in_network/datagrams.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"

namespace syntony {

class AggregationClient {
 public:
  /// Called many times per second while waiting; may throw to give up.
  using Interrupt = std::function<void()>;

  /// Joins the job that `token` names. Collective: returns once all workers have joined. Throws Error.
  AggregationClient(const AggregationWays& ways, const Token& token, std::uint32_t rank,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt);
  ~AggregationClient();
  AggregationClient(const AggregationClient&) = delete;
  AggregationClient& operator=(const AggregationClient&) = delete;

  /// output = the sum of all workers' input, `elements` of `dtype` sent in `format`. Collective, in order. The buffers
  /// are equal or disjoint. Throws Error(invalid) for a format that cannot carry `dtype`, before anything is sent; any
  /// other Error ends the job, and is rethrown by every later call.
  void all_reduce(NumberFormat format, DType dtype, const std::byte* input, std::byte* output, std::size_t elements,
                  std::chrono::milliseconds timeout, const Interrupt& interrupt);

  /// Leaves the job; later calls throw Error(aborted).
  void close();

  [[nodiscard]] std::size_t window() const { return window_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  /// Packets that were sent again because they had not arrived.
  [[nodiscard]] std::uint64_t resent() const { return resent_; }
  /// Questions about sums that had not arrived.
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  /// Sums for which an aggregator with shared slots had no slot.
  [[nodiscard]] std::uint64_t passed_on() const { return passed_on_; }
  /// Packets that it would keep in flight now.
  [[nodiscard]] std::size_t under_way() const { return congestion_.packets(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Operation;

  void join(const AggregationWays& ways, const Token& token, std::chrono::milliseconds timeout,
            const Interrupt& interrupt);
  void connect(Clock::time_point deadline, const Interrupt& interrupt);
  /// Waits for bytes on the connection, or for packets. Throws Error(timeout) at the deadline.
  void wait(short events, Clock::time_point deadline, const Interrupt& interrupt);
  void send_whole(const void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  void receive_whole(void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  /// Reads the connection's next frame, if there is one. Only a failure may arrive now, which is thrown.
  void listen(const Interrupt& interrupt);
  /// Checks a frame's header, and throws if it is invalid; reads a failure to its end and throws it.
  void judge(const AggregationFrame& frame, Clock::time_point deadline, const Interrupt& interrupt);
  void tell(AggregationFrame::Kind kind, const void* body, std::size_t length);
  [[noreturn]] void gone(int error_number) const;
  [[noreturn]] void give_up(const Error& error);

  TcpAddress address_;  // of the aggregator, for connections and packets
  Token token_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  UniqueFd socket_;
  std::unique_ptr<Datagrams> datagrams_;
  std::size_t window_ = 1;
  std::size_t slot_bytes_ = 0;
  CongestionWindow congestion_;
  std::uint32_t operation_ = 0;
  std::uint64_t sequence_ = 0;  // of the next packet
  std::uint64_t asked_ = 0;
  std::uint64_t resent_ = 0;
  std::uint64_t passed_on_ = 0;
  std::optional<Error> broken_;
};

}  // namespace syntony

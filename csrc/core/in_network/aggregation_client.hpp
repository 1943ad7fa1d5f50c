// A worker's end of a job at an aggregator: all_reduce by sending what one has and receiving what all have.
//
//   slot     0   1   2   3      at most one packet of each is in flight: when a slot's sum has come, its next may go
//   sent     8   9   6   7
//   has      4   5   2   3 ..   6 is late: others go on, until it is its slot's turn again
//
// Slots are the most that may be in flight; how many are, CongestionWindow finds.
//
// What is lost is sent again by the worker, the only one with a clock (Sapio et al., SwitchML, NSDI'21, section 3.5): a
// packet whose sum has not come when the sums of packets sent well after it have, or when nothing has come for a while.
// A lost packet keeps everybody's sum away, so it is asked first whose it was: only that one is sent again.
// In place is safe, because a packet's sum is written when the packet needs not be sent again.
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

  /// Joins the job that `token` names. Collective: returns when all workers have come. Throws Error.
  AggregationClient(const AggregationWays& ways, const Token& token, std::uint32_t rank,
                    std::chrono::milliseconds timeout, const Interrupt& interrupt);
  ~AggregationClient();
  AggregationClient(const AggregationClient&) = delete;
  AggregationClient& operator=(const AggregationClient&) = delete;

  /// output = the sum of all workers' input, `elements` of `dtype` travelling in `format`. Collective, in order. The
  /// buffers are the same or apart. Throws Error(invalid) for a format that does not carry `dtype`, before anything is
  /// sent; any other Error ends the job, and is thrown again by every later call.
  void all_reduce(NumberFormat format, DType dtype, const std::byte* input, std::byte* output, std::size_t elements,
                  std::chrono::milliseconds timeout, const Interrupt& interrupt);

  /// Leaves the job; later calls throw Error(aborted).
  void close();

  [[nodiscard]] std::size_t window() const { return window_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  /// Packets that were sent again, as they had not arrived.
  [[nodiscard]] std::uint64_t resent() const { return resent_; }
  /// Questions after sums that had not come.
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  /// Sums that an aggregator of shared slots had no slot for.
  [[nodiscard]] std::uint64_t passed_on() const { return passed_on_; }
  /// Packets that it would have under way now.
  [[nodiscard]] std::size_t under_way() const { return congestion_.packets(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Operation;

  void join(const AggregationWays& ways, const Token& token, std::chrono::milliseconds timeout,
            const Interrupt& interrupt);
  void connect(Clock::time_point deadline, const Interrupt& interrupt);
  /// Waits for bytes of the connection, or for packets. Throws Error(timeout) at the deadline.
  void wait(short events, Clock::time_point deadline, const Interrupt& interrupt);
  void send_whole(const void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  void receive_whole(void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  /// Reads the connection's next frame, if there is one: nothing but a failure may come now. Throws it.
  void listen(const Interrupt& interrupt);
  /// Believes a frame's head, or throws; reads a failure to its end and throws it.
  void judge(const AggregationFrame& frame, Clock::time_point deadline, const Interrupt& interrupt);
  void tell(AggregationFrame::Kind kind, const void* body, std::size_t length);
  [[noreturn]] void gone(int error_number) const;
  [[noreturn]] void give_up(const Error& error);

  TcpAddress address_;  // of the aggregator: its connections, and its packets
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

// A worker's end of a job at an aggregator: all_reduce by sending what one has and receiving what all have.
//
//   sent       0 1 2 3 4 5 6 7            at most `window` chunks more than were received: returned sums pace the
//   sender received   0 1 2 3
//
// Elements that travel as they lie in memory are sent from the input and received into the output without a copy; in
// place is safe, because a chunk's sum can only come when the chunk has left.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "emulation/aggregator/aggregation_wire.hpp"

namespace syntony {

class AggregationClient {
 public:
  /// Called several times per second while waiting; may throw to give up.
  using Interrupt = std::function<void()>;

  /// Joins the job that `token` names. Collective: returns when all `ranks` workers have come. `secret`: the
  /// aggregator's, if it has one. Throws Error.
  AggregationClient(TcpAddress address, const Token& token, std::uint32_t rank, std::uint32_t ranks,
                    std::chrono::milliseconds timeout, const std::string& secret, const Interrupt& interrupt);
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

 private:
  using Clock = std::chrono::steady_clock;
  class Operation;

  /// Waits for the socket. Throws Error(timeout) at the deadline.
  short wait(short events, Clock::time_point deadline, const Interrupt& interrupt);
  void send_whole(const void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  void receive_whole(void* bytes, std::size_t length, Clock::time_point deadline, const Interrupt& interrupt);
  /// Believes a frame's head, or throws; reads a failure to its end and throws it.
  void judge(const AggregationFrame& frame, Clock::time_point deadline, const Interrupt& interrupt);
  void connect(Clock::time_point deadline, const Interrupt& interrupt);
  [[noreturn]] void gone(int error_number) const;
  [[noreturn]] void give_up(const Error& error);

  TcpAddress address_;
  std::uint64_t token_;
  std::uint32_t ranks_;
  UniqueFd socket_;
  std::size_t window_ = 1;
  std::size_t slot_bytes_ = 0;
  std::uint32_t operation_ = 0;
  std::optional<Error> broken_;
};

}  // namespace syntony

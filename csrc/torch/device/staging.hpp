// Collectives on device memory by way of host memory: down, over the transports, up. Pieces of a call overlap, and so
// do calls.
//
//     device ──down──▶ slot ── an operation of the group ──▶ slot ──up──▶ device
//     stream `down`    [p3]      [p2] (and p1, if it is not over)  [p0]   stream `up`
//
// A slot is pinned memory for one piece. On the way down, the copies of a piece wait (in the stream) until the slot's
// previous piece has gone up; the host waits until they are done before it starts the operation.
//
// Ranks see the same calls in the same order, split the same way. The group is used for these calls alone, because
// operations started in between by other threads have an order of their own.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/group/communicator.hpp"
#include "torch/buffers.hpp"
#include "torch/device/stream_future.hpp"

namespace syntony::glue {

/// For one group and device. run() may be called by any thread; everything else happens on a thread of its own.
class Staging {
 public:
  /// The best value has not been measured on any device. Ranks must agree on it.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  static constexpr std::size_t kSlots = 4;

  Staging(std::shared_ptr<Communicator> group, const c10::Device& device);
  /// Ends what is in flight: the group is shut down.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] Communicator& group() const { return *group_; }
  /// The call starts after `ready`. Its blocks are in device memory that `buffers` hold.
  std::shared_ptr<StreamFuture> run(Call call, c10::Event ready, std::shared_ptr<Buffers> buffers);
  std::shared_ptr<StreamFuture> barrier(CallOptions options, c10::Event ready, std::shared_ptr<Buffers> buffers);

 private:
  struct Order;
  struct Span;
  struct Slot;
  struct Piece;

  std::shared_ptr<StreamFuture> enqueue(std::shared_ptr<Order> order);
  void live();
  /// The next piece; if there is none, waits for one or returns nothing.
  std::optional<Piece> next(bool wait);
  void go_down(Piece& piece);
  void start(Piece& piece);
  void finish(Piece& piece);

  std::shared_ptr<Communicator> group_;
  c10::Device device_;
  c10::Stream down_, up_;
  std::vector<Slot> slots_;
  std::size_t pieces_ = 0;  // so far
  std::mutex mutex_;        // guards the next three
  std::condition_variable came_;
  std::deque<std::shared_ptr<Order>> orders_;
  bool stop_ = false;
  std::thread thread_;  // last: uses everything above
};

}  // namespace syntony::glue

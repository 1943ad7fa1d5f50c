// How the sockets of a group are doing, as the kernel counts it (TCP_INFO), to find out which wire is slow.
//
//      owner of progress            a completion thread, once a second       anybody, at any time
//      watch(peer, flow, fd) ─┐
//      Watched goes ──────────┴───► sample(): one system call per socket ──► all(): at most 64 samples of each
//
// Older samples are thinned out, so that the samples reach back to the socket's creation:
//
//      |                |       |       |   |   | | | ||||||||||    now
//
// Frames do not touch this: its only lock is taken when a socket opens or closes, and when sampling or reading.
// Dividing a wire's bytes by its busy time gives its rate, whatever the job did meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace syntony {

/// The sending side of a socket. Counted from when it was opened; times in microseconds unless stated.
struct WireSample {
  std::int64_t at = 0;           // nanoseconds_now()
  std::uint64_t bytes = 0;       // acknowledged by the peer
  std::uint64_t busy = 0;        // time with data in flight or waiting for the wire
  std::uint64_t held = 0;        // part of `busy` in which the receiver had no room
  std::uint64_t rate = 0;        // delivery rate in bytes/s, the kernel's last estimate
  std::uint32_t round_trip = 0;  // smoothed by the kernel, including queueing
  std::uint32_t resent = 0;      // packets
};

class Wires : public std::enable_shared_from_this<Wires> {
 public:
  /// Keeps a socket sampled for as long as this lives; must be destroyed before the socket is closed.
  class Watched {
   public:
    Watched() = default;
    Watched(std::shared_ptr<Wires> wires, std::size_t place) : wires_(std::move(wires)), place_(place) {}
    Watched(Watched&&) = default;
    Watched& operator=(Watched&& other) noexcept {
      end();
      wires_ = std::move(other.wires_);
      place_ = other.place_;
      return *this;
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    ~Watched() { end(); }
    /// The socket has ended before its group.
    void lose() noexcept {
      end(true);
      wires_ = nullptr;
    }

   private:
    void end(bool lost = false) noexcept;

    std::shared_ptr<Wires> wires_;
    std::size_t place_ = 0;
  };

  struct Wire {
    std::uint32_t peer = 0;           // rank in the group
    std::uint32_t flow = 0;           // which of the sockets to that peer
    std::vector<WireSample> samples;  // oldest first
    bool lost = false;                // it has ended before its group
  };

  /// Of a socket, without its samples.
  struct State {
    std::uint32_t peer = 0;
    bool lost = false;
  };

  /// Takes the place of a lost one.
  [[nodiscard]] Watched watch(std::uint32_t peer, std::uint32_t flow, int socket);
  /// Samples every open socket, unless that was done within the last 0.9 s.
  void sample();
  [[nodiscard]] std::vector<Wire> all() const;
  [[nodiscard]] std::vector<State> states() const;

 private:
  struct Entry {
    Wire wire;
    int socket = -1;  // closed
  };

  static void look(Entry& entry);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::int64_t last_ = 0;
};

}  // namespace syntony

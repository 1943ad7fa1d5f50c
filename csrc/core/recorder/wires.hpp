// How the sockets of a group are doing, as the kernel counts it (TCP_INFO): for whoever asks which wire is slow.
//
//      owner of progress            a completion thread, once a second       anybody, at any time
//      watch(peer, flow, fd) ─┐
//      Watched goes ──────────┴───► sample(): one system call per socket ──► all(): at most 64 samples of each
//
// What was longer ago is kept more sparsely, so that the samples reach back to the socket's beginning:
//
//      |                |       |       |   |   | | | ||||||||||    now
//
// Frames are none of its business: the one lock here is taken when a socket opens or closes, and by who samples or
// reads. What divides a wire's bytes by the time in which it was busy has its rate, whatever the job did meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace syntony {

/// A socket's sending side. Counted from when it was opened, times in microseconds unless said.
struct WireSample {
  std::int64_t at = 0;           // nanoseconds_now()
  std::uint64_t bytes = 0;       // that the peer has acknowledged
  std::uint64_t busy = 0;        // while something was on its way or waited for the wire
  std::uint64_t held = 0;        // of that, while the receiver had no room
  std::uint64_t rate = 0;        // of delivery, bytes/s: the kernel's last estimate
  std::uint32_t round_trip = 0;  // the kernel's smoothed one, waiting in queues included
  std::uint32_t resent = 0;      // packets
};

class Wires : public std::enable_shared_from_this<Wires> {
 public:
  /// A socket that is looked at as long as this lives, which must end before the socket is closed.
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

   private:
    void end() noexcept;

    std::shared_ptr<Wires> wires_;
    std::size_t place_ = 0;
  };

  struct Wire {
    std::uint32_t peer = 0;           // rank of the group
    std::uint32_t flow = 0;           // which of the sockets to it
    std::vector<WireSample> samples;  // oldest first
  };

  [[nodiscard]] Watched watch(std::uint32_t peer, std::uint32_t flow, int socket);
  /// Asks the kernel about every socket that is open, unless that was done within the last 0.9 s.
  void sample();
  [[nodiscard]] std::vector<Wire> all() const;

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

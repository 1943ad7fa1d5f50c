// One data socket, perhaps not yet connected: frames queued for writing, and frames read directly into their slots.
//
//  writing   sendmsg of [prefix header payload] [prefix header payload] [credit] ..  in place, without a copy
//  reading   readv into  [rest of the payload, in its slot] [8 KiB aside]            the bytes aside hold the next
//                                                                                    heads and short payloads; an
//                                                                                    incomplete head is kept
//
// Frames waiting here are sent in turns. A lane that finds four free slots fills them at once; in order of arrival, a
// single frame that another rank passes on would wait behind all four:
//
//   committed   a0 a1 a2 a3 b0 b1          by channels a and b of one operation
//   sent        a0 b0 a1 b1 a2 a3          start-time fair queueing (Goyal et al., SIGCOMM 1996), by bytes
//
// A wire that takes long for kPart gets long frames in parts, between which others go; so a frame that is begun delays
// those by a part at most:
//
//   [prefix(cut) header] [prefix(part) bytes] [prefix header payload of an urgent frame] [prefix(part) bytes] ..
//
// Operations of a priority do not take turns: the one whose frames came first goes first. Frames of a higher priority
// pass all that are not begun. Credits go before all frames, because somebody may need them to send. The kernel is
// given no more than it needs to keep the wire busy (tune_data_socket).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/frames/frame_link.hpp"
#include "core/recorder/wires.hpp"
#include "core/tcp/tcp_stream.hpp"

namespace syntony {

class TcpFlow {
 public:
  [[nodiscard]] int socket() const { return socket_.get(); }
  /// Before this, nothing is read, and what is queued stays queued.
  void open(TcpStream socket, Wires::Watched watched);

  /// Queues a prefix without a frame, or a frame whose payload must not change until its credit has come back.
  /// `repeated`: the kernel has taken it once, over another flow.
  void push(const FramePrefix& prefix);
  void push(const FramePrefix& prefix, const FrameHeader& header, const std::byte* payload, Priority priority,
            bool repeated = false);
  /// push(), in parts of kPart if the wire is slow. Only for the one socket that leads to the peer.
  void push_in_parts(const FramePrefix& prefix, const FrameHeader& header, const std::byte* payload, Priority priority);
  static constexpr std::uint32_t kPart = 128 * 1024;
  /// Copies the unsent rest of the payload pushed last, if any, to `slot`, and sends it from there.
  void keep_last(std::byte* slot);
  /// Bytes that wait here, or in the kernel until the peer's has acknowledged them.
  [[nodiscard]] std::size_t backlog() const;
  /// Data frames, not credits, that the kernel has never taken completely.
  [[nodiscard]] std::size_t unsent_frames() const;
  [[nodiscard]] std::size_t unsent_entries() const { return outbox_.size() - first_ + (socket_.pending() ? 1 : 0); }
  void forget_unsent();
  /// True if the kernel has not yet taken all of this frame.
  [[nodiscard]] bool queues(const FramePrefix& frame) const;
  /// The frame that has begun to arrive and is not complete.
  [[nodiscard]] std::optional<FramePrefix> arriving() const;

  /// Memory for data that has no place yet when read. Any number of flows, one at a time, may share it.
  using Aside = std::array<std::byte, 8192 + 256>;
  enum class Outcome { moved, nothing, ended, refused };
  /// Writes until everything is written or the kernel accepts no more. `ended`: the connection is broken, see
  /// failure(). If the peer has closed it, that is for read() to say, after what the peer had sent.
  Outcome write();
  /// Reads once. `ended`: end of file or broken; `refused`: the sink refused, so the stream is invalid from here on.
  Outcome read(FrameSink& sink, Aside& aside);
  /// If the payload that is being read goes to `from`, its rest goes to the same offset in `to`.
  void redirect(std::span<const std::byte> from, std::byte* to);
  /// The errno behind `ended`; 0 for an orderly end of file.
  [[nodiscard]] int failure() const { return failure_; }

  /// Records what epoll reported, edge-triggered: whether reading or writing is worth trying.
  void became_ready(std::uint32_t events);
  /// Reading is worth trying though epoll has not said so. False if it was already, or never is again.
  bool suspect() { return socket_.get() >= 0 && !std::exchange(readable_, true); }
  [[nodiscard]] bool readable() const { return readable_; }
  [[nodiscard]] bool writable() const { return writable_; }
  /// Before this rank sleeps: it need not wake for each packet, as those of a slow wire arrive one by one and part of a
  /// frame is of no use.
  void await_payload();
  /// Stops all reading and writing. What is queued stays until forget_unsent().
  void hang_up();
  void shut();

 private:
  using Clock = std::chrono::steady_clock;
  struct Outgoing {
    FramePrefix prefix;
    FrameHeader header;
    const std::byte* payload = nullptr;  // of the whole frame,
    std::size_t offset = 0;              // from here on
    std::uint64_t turn = 0;              // bytes that each channel may send before it
    Priority priority = Priority::normal;
    bool repeated = false;

    [[nodiscard]] bool of_frame() const { return prefix.kind == FramePrefix::kData || cut() || part(); }
    [[nodiscard]] bool cut() const { return prefix.kind == FramePrefix::kCut; }
    [[nodiscard]] bool part() const { return prefix.kind == FramePrefix::kPart; }
    /// With it, all of its frame is written.
    [[nodiscard]] bool last() const { return of_frame() && offset + payload_bytes() == header.length; }
    [[nodiscard]] std::size_t head_bytes() const {
      return sizeof(prefix) + (of_frame() && !part() ? sizeof(header) : 0);
    }
    [[nodiscard]] std::size_t payload_bytes() const { return part() ? prefix.number : cut() ? 0 : header.length; }
    [[nodiscard]] std::size_t bytes() const { return head_bytes() + payload_bytes(); }
  };
  static_assert(offsetof(Outgoing, header) == sizeof(FramePrefix), "prefix and header are written as one piece");

  /// A frame that arrives in parts.
  struct Cut {
    FramePrefix prefix;
    std::size_t bytes = 0;    // of its payload,
    std::size_t arrived = 0;  // of these
    [[nodiscard]] bool holds(const FramePrefix& part) const {
      return prefix.window == part.window && prefix.channel == part.channel;
    }
  };

  /// Queues it before the last entries, those that it `passes`, but behind a partly written one.
  template <typename Passes>
  void insert(const Outgoing& outgoing, const Passes& passes);
  void insert(const Outgoing& outgoing);
  /// The turn of a channel's next frame.
  [[nodiscard]] std::uint64_t next_turn(const FramePrefix& prefix, const FrameHeader& header);
  /// Drops `bytes` bytes from the front of the outbox, which the kernel takes `now`.
  void advance(std::size_t bytes, Clock::time_point now);
  void judge(std::size_t bytes, Clock::duration took);
  /// The cut frame of a part's stream, or none.
  [[nodiscard]] std::vector<Cut>::iterator cut_of(const FramePrefix& part);
  /// All of remaining_ is there.
  void complete(FrameSink& sink);
  [[nodiscard]] bool parse(FrameSink& sink, std::span<const std::byte> bytes);
  /// Bytes for which to wake a sleeper.
  [[nodiscard]] int worth_waking() const;
  void await_less();
  void await(int bytes);

  TcpStream socket_;
  Wires::Watched watched_;  // destroyed before the socket is closed
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;  // end of file follows what has yet to be read
  int failure_ = 0;

  std::vector<Outgoing> outbox_;  // entries before first_ are written
  std::size_t first_ = 0;
  std::size_t written_ = 0;          // of entry first_
  std::uint64_t turn_ = 0;           // of the last frame begun
  std::vector<std::uint64_t> ends_;  // by channel: the turn at which its last frame ends
  Clock::time_point since_;          // when the kernel took the first bytes of entry first_
  unsigned quick_ = 0;               // long payloads in a row that it took at once

  std::array<std::byte, sizeof(FramePrefix) + sizeof(FrameHeader)> begun_{};  // the first bytes of an incomplete head
  std::size_t begun_bytes_ = 0;
  FramePrefix current_;             // of the frame or part being read
  std::span<std::byte> remaining_;  // its payload still to come
  std::vector<Cut> cut_;            // at most one of each stream
  int awaited_ = 1;                 // number of bytes that wakes us
};

}  // namespace syntony

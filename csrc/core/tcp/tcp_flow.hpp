// One data socket, perhaps not yet connected: frames queued for writing, and the reading of frames straight into their
// slots.
//
//   writing   sendmsg of [prefix header payload] [prefix header payload] [credit] ..  from where they lie, no copy
//   reading   readv into  [rest of the payload, in its slot] [4 KiB aside]            the bytes aside hold the next
//                                                                                     heads and the odd short payload;
//                                                                                     a head that is not whole is kept
//
// What waits here is sent in turns. A lane that finds four free slots fills them at once; first come, first served, the
// one frame that another rank passes on would wait behind all four:
//
//   committed   a0 a1 a2 a3 b0 b1          by channels a and b of one operation
//   sent        a0 b0 a1 b1 a2 a3          start-time fair queueing (Goyal et al., SIGCOMM 1996), by bytes
//
// Operations do not take turns: whose frames came first, goes first. Credits go before all frames, since somebody may
// wait for them to send. The kernel is given no more than it needs to keep the wire busy (tune_data_socket).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/frames/frame_link.hpp"
#include "core/process/unique_fd.hpp"
#include "core/recorder/wires.hpp"

namespace syntony {

class TcpFlow {
 public:
  [[nodiscard]] int socket() const { return socket_.get(); }
  /// Before, nothing is read and what is queued stays queued.
  void open(UniqueFd socket, Wires::Watched watched);

  /// Queues a credit, or a frame whose payload must stay as it is until its credit has come back.
  void push(const FramePrefix& credit);
  void push(const FramePrefix& prefix, const FrameHeader& header, const std::byte* payload);
  /// Copies to `slot` what is still unsent of the payload that was pushed last, if anything, and sends it from there.
  void keep_last(std::byte* slot);
  /// Frames with data, credits not counted, that the kernel has not taken whole.
  [[nodiscard]] std::size_t unsent_frames() const;
  [[nodiscard]] std::size_t unsent_entries() const { return outbox_.size() - first_; }
  void forget_unsent();

  /// For what is read and has no place yet. Any number of flows, in turn, may use one.
  using Aside = std::array<std::byte, 4096>;
  enum class Outcome { moved, nothing, ended, refused };
  /// Writes until all is written or the kernel takes no more. `ended`: the connection is broken, see failure().
  Outcome write();
  /// One system call's worth. `ended`: end of file or broken; `refused`: the sink refused, the stream makes no sense
  /// from here on.
  Outcome read(FrameSink& sink, Aside& aside);
  /// If the payload that is being read goes to `from`: its rest goes to the same place of `to`.
  void redirect(std::span<const std::byte> from, std::byte* to);
  /// The errno behind `ended`; 0 for an orderly end of file.
  [[nodiscard]] int failure() const { return failure_; }

  /// What epoll said, edge-triggered: whether it is worth trying.
  void became_ready(std::uint32_t events);
  [[nodiscard]] bool readable() const { return readable_; }
  [[nodiscard]] bool writable() const { return writable_; }
  /// Nothing more will be read or written.
  void shut();

 private:
  struct Outgoing {
    FramePrefix prefix;
    FrameHeader header;
    const std::byte* payload = nullptr;
    std::uint64_t turn = 0;  // of a frame: the bytes that each channel may send before it

    [[nodiscard]] std::size_t head_bytes() const {
      return sizeof(prefix) + (prefix.kind == FramePrefix::kData ? sizeof(header) : 0);
    }
    [[nodiscard]] std::size_t bytes() const { return head_bytes() + header.length; }
  };
  static_assert(offsetof(Outgoing, header) == sizeof(FramePrefix), "prefix and header are written as one piece");

  /// Queues it before the last entries, those that it `passes`, but behind what is written in part.
  template <typename Passes>
  void insert(const Outgoing& outgoing, const Passes& passes);
  /// Drops `bytes` written bytes from the front of the outbox.
  void advance(std::size_t bytes);
  [[nodiscard]] bool parse(FrameSink& sink, std::span<const std::byte> bytes);
  /// Tells the kernel when to wake us.
  void await_payload();

  UniqueFd socket_;
  Wires::Watched watched_;  // ends before the socket does
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;  // end of file lies behind what is still to be read
  int failure_ = 0;

  std::vector<Outgoing> outbox_;  // entries before first_ are written
  std::size_t first_ = 0;
  std::size_t written_ = 0;          // bytes of entry first_
  std::uint64_t turn_ = 0;           // of the frame that was begun last
  std::vector<std::uint64_t> ends_;  // by channel: the turn at which its last frame ends

  std::array<std::byte, sizeof(FramePrefix) + sizeof(FrameHeader)> begun_{};  // the first bytes of a head
  std::size_t begun_bytes_ = 0;
  FramePrefix current_;             // of the frame being read
  std::span<std::byte> remaining_;  // its payload still to come
  int awaited_ = 1;                 // bytes that wake us
};

}  // namespace syntony

// Peers that close, die or send invalid data on the data sockets.
#include <sys/socket.h>

#include <array>
#include <random>

#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

constexpr StreamShape kShape{.ranks = 3, .channels = 2, .windows = 2, .depth = 4, .slot_bytes = 1000};

/// A frame on the wire, to be corrupted.
struct RawFrame {
  FramePrefix prefix;
  FrameHeader header;
};

RawFrame good_frame(const Rank& rank) {
  return {{.token = rank.identity().prefix_token(), .number = 0, .window = 1, .channel = 1}, rank.header(1, 0)};
}

/// Rank 2 sends rank 0 invalid data. Rank 0 names it, once; rank 1 and rank 0 go on undisturbed.
void nonsense(std::uint64_t) {
  struct Case {
    void (*spoil)(RawFrame&);
    std::string complaint;
  };
  const std::array cases{
      Case{[](RawFrame& frame) { frame.prefix.kind = 1; }, "does not begin like one"},
      Case{[](RawFrame& frame) { frame.prefix.token ^= 1; }, "token is not this group's"},
      Case{[](RawFrame& frame) { frame.prefix.channel = 2; }, "channel 2, window 1 of 2 x 2"},
      Case{[](RawFrame& frame) { frame.prefix.window = 4'000'000'000; }, "channel 1, window 4000000000"},
      Case{[](RawFrame& frame) { frame.prefix.number = 4; }, "no slot was free for frame 4"},
      Case{[](RawFrame& frame) { frame.prefix.number = ~0ULL; }, "no slot was free"},
      Case{[](RawFrame& frame) { frame.header.token ^= 1; }, "another group"},
      Case{[](RawFrame& frame) { frame.header.group = 8; }, "another group (8 instead of 7)"},
      Case{[](RawFrame& frame) { frame.header.channel = 0; }, "names channel 0 on the stream of channel 1"},
      Case{[](RawFrame& frame) { frame.header.length = 1001; }, "1001 bytes where a slot takes 1000"},
      Case{[](RawFrame& frame) { frame.header.length = ~0U; }, "4294967295 bytes"},
      Case{[](RawFrame& frame) {
             frame.prefix = {
                 .kind = FramePrefix::kCredit, .token = frame.prefix.token, .number = 1, .window = 0, .channel = 0};
           },
           "credit for 1 frames, more than were sent"},
      Case{[](RawFrame& frame) { frame.prefix = {.kind = FramePrefix::kCredit, .token = 5}; }, "token"},
      Case{[](RawFrame& frame) { frame.prefix = {.kind = FramePrefix::kLost, .token = 5}; }, "token"},
      Case{[](RawFrame& frame) {
             frame.prefix = {.kind = FramePrefix::kLost, .token = frame.prefix.token, .number = 2};
           },
           "it has lost connection 2 of 2"},
  };
  for (const Case& one : cases) {
    run_ranks(3, [&one](Rank& rank) {
      std::vector<TcpPeer> peers = rank.connect();
      if (rank.rank == 2) {
        RawFrame frame = good_frame(rank);
        one.spoil(frame);
        write_bytes(peers[0].flows[1].get(), bytes_of(frame));
        rank.meet();
        return;
      }
      TcpTransport transport(kShape, rank.identity(), peers);
      if (rank.rank == 0) {
        const Error error = error_of([&] {
          for (const Clock::time_point end = Clock::now() + seconds(20); Clock::now() < end;) transport.progress();
        });
        require(error.kind() == Error::Kind::mismatch && error.ranks() == std::vector<int>{2}, error.what());
        require_in("rank 2 at 127.0.0.1:", error.what());
        require_in(one.complaint, error.what());
        const Error again = error_of([&] { (void)transport.sender(2, 0, 0).reserve(0); });
        require(again.kind() == Error::Kind::dead && again.ranks() == std::vector<int>{2}, again.what());
      }
      Sender& sender = transport.sender(1 - rank.rank, 0, 0);
      Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
      require(sender.reserve(1000) != nullptr, "the others go on");
      sender.commit(rank.header(0, 1000));
      eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "the others go on");
      rank.meet();
    });
  }
}

/// Random bytes after the handshake: rejected or waited for, never accepted. (Sanitizers watch.)
void noise(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t round_seed = random();
    run_ranks(2, [round_seed](Rank& rank) {
      std::vector<TcpPeer> peers = rank.connect({.flows = 1});
      if (rank.rank == 1) {
        std::mt19937_64 dice(round_seed);
        const RawFrame frame = good_frame(rank);
        std::vector<std::byte> bytes(bytes_of(frame).begin(), bytes_of(frame).end());
        bytes.resize(sizeof(frame) + dice() % 3000);
        // Flips a few bits of a valid frame, and of all that follows.
        for (int flips = 0; flips < 3; ++flips)
          bytes[dice() % sizeof(frame)] ^= static_cast<std::byte>(1 << dice() % 8);
        for (std::size_t i = sizeof(frame); i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(dice());
        write_bytes(peers[0].flows[0].get(), bytes);
        write_bytes(peers[0].control.get(), bytes);
        rank.meet();
        return;
      }
      TcpTransport transport(kShape, rank.identity(), peers);
      TcpControl control(rank.identity(), peers);
      rank.meet();
      try {
        eventually([&] { return control.progress(), !transport.progress(); }, "nothing more moves");
      } catch (const Error& error) {
        require(error.kind() == Error::Kind::mismatch, error.what());
      }
      eventually([&] { return control.progress(), control.status(1).state == PeerStatus::State::dead; },
                 "the control connection is given up");
    });
  }
}

/// Frames that arrived stay readable after the peer's end, partial frames are never shown, and sending fails by name.
void dead_peer(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1});
    if (rank.rank == 1) {
      {
        TcpTransport transport({.ranks = 2, .channels = 2, .windows = 2, .depth = 4, .slot_bytes = 1000},
                               rank.identity(), std::span(peers));
        Sender& sender = transport.sender(0, 1, 1);
        for (int i = 0; i < 3; ++i) {
          require(sender.reserve(1000) != nullptr, "room");
          sender.commit(rank.header(1, 1000));
        }
        require(transport.drain(kPatience), "delivered");
      }
      rank.meet();
      return;
    }
    TcpTransport transport(kShape, rank.identity(), peers);
    rank.meet();
    Receiver& receiver = transport.receiver(1, 1, 1);
    eventually([&] { return !transport.progress(); }, "no fault: nothing was to be sent");
    for (int i = 0; i < 3; ++i) {
      require(receiver.front() != nullptr && receiver.front()->length == 1000, "still there");
      receiver.release();
    }
    require(receiver.front() == nullptr, "no more");
    require(!transport.progress(), "credits that nobody takes are no fault");
    const Error error = error_of([&] { (void)transport.sender(1, 0, 0).reserve(0); });
    require(error.kind() == Error::Kind::dead && error.ranks() == std::vector<int>{1}, "names rank 1");
    require_in("rank 1 at 127.0.0.1:", error.what());
    require_in("connection", error.what());
  });
}

void half_a_frame(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1});
    if (rank.rank == 1) {
      RawFrame frame = good_frame(rank);
      write_bytes(peers[0].flows[0].get(), bytes_of(frame));
      frame.prefix.number = 1;
      frame.header.length = 1000;
      write_bytes(peers[0].flows[0].get(), bytes_of(frame));
      write_bytes(peers[0].flows[0].get(), std::vector<std::byte>(999));
      reset_when_closed(peers[0].flows[0].get());
      peers[0].flows[0].close();
      rank.meet();
      return;
    }
    TcpTransport transport(kShape, rank.identity(), peers);
    rank.meet();
    eventually([&] { return !transport.progress(); }, "no fault");
    Receiver& receiver = transport.receiver(1, 1, 1);
    require(receiver.front() != nullptr, "the whole frame is there");
    receiver.release();
    require(receiver.front() == nullptr, "the half is not");
  });
}

/// The peer dies while frames wait for the kernel: they are lost, and progress() names their destination.
void undelivered(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 64, .slot_bytes = 1 << 20};
    std::vector<TcpPeer> peers = rank.connect({.flows = 2, .send_buffer = 65536, .receive_buffer = 65536});
    if (rank.rank == 1) {
      rank.meet();
      for (TcpStream& flow : peers[0].flows) flow.close();
      rank.meet();
      return;
    }
    TcpTransport transport(shape, rank.identity(), peers);
    Sender& sender = transport.sender(1, 0, 0);
    while (sender.reserve(shape.slot_bytes) != nullptr) sender.commit(rank.header(0, shape.slot_bytes));
    while (transport.progress()) {
    }
    rank.meet();
    const Error error = error_of([&] {
      for (const Clock::time_point end = Clock::now() + seconds(20); Clock::now() < end;) transport.progress();
    });
    require(error.kind() == Error::Kind::dead && error.ranks() == std::vector<int>{1}, error.what());
    require_in("frames undelivered", error.what());
    require(!transport.progress() || !transport.progress(), "said once");
    require_in("rank 1", error_of([&] { (void)sender.reserve(0); }).what());
    rank.meet();
  });
}

/// Rank 1 is gone, without a goodbye, before rank 0 sends anything to it.
void gone_before_the_first_frame(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers;
    std::unique_ptr<TcpMeeting> meeting = rank.meet_for_control({}, peers);
    TcpTransport transport(kShape, rank.identity(), peers, meeting.get());
    rank.meet();
    if (rank.rank == 1) meeting.reset();
    rank.meet();
    if (rank.rank == 1) return;
    Sender& sender = transport.sender(1, 0, 0);
    require(sender.reserve(10) != nullptr, "nobody knows yet");
    const Error error = error_of([&] {
      sender.commit(rank.header(0, 10));
      for (const Clock::time_point end = Clock::now() + kPatience; Clock::now() < end;) transport.progress();
    });
    require(error.kind() == Error::Kind::dead && error.ranks() == std::vector<int>{1}, error.what());
    require_in("rank 1 at 127.0.0.1:", error.what());
    require_in("refused the connection", error.what());
    require(!transport.progress() || !transport.progress(), "said once");
    require(transport.drain(kPatience), "nothing is on its way any more");
    require_in("rank 1 cannot be reached", error_of([&] { (void)sender.reserve(0); }).what());
  });
}

/// Rank 1 has no data to move and only tends its control plane: rank 0 can send and leave.
void sent_to_an_idle_rank(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers;
    const std::unique_ptr<TcpMeeting> meeting = rank.meet_for_control({}, peers);
    TcpTransport transport(kShape, rank.identity(), peers, meeting.get());
    TcpControl control(rank.identity(), peers, meeting.get());
    if (rank.rank == 0) {
      Sender& sender = transport.sender(1, 0, 0);
      require(sender.reserve(1000) != nullptr, "room");
      sender.commit(rank.header(0, 1000));
      require(transport.unsent(), "not yet");
      require(transport.drain(kPatience), "delivered");
      control.leave();
      return;
    }
    eventually([&] { return control.progress(), control.status(0).state == PeerStatus::State::left; }, "a goodbye");
    Receiver& receiver = transport.receiver(0, 0, 0);
    eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "what was sent before");
    require(receiver.front()->length == 1000, "whole");
  });
}

/// Both ranks of every pair send to the other at the same moment: one connection results, and everything arrives.
void both_at_once(std::uint64_t) {
  for (int turn = 0; turn < 10; ++turn) {
    run_ranks(4, [](Rank& rank) {
      const StreamShape shape{.ranks = 4, .channels = 1, .windows = 1, .depth = 4, .slot_bytes = 1000};
      std::vector<TcpPeer> peers;
      const std::unique_ptr<TcpMeeting> meeting = rank.meet_for_control({.flows = 3}, peers);
      TcpTransport transport(shape, rank.identity(), peers, meeting.get());
      rank.meet();
      for (const std::uint32_t other : rank.others()) {
        Sender& sender = transport.sender(other, 0, 0);
        for (std::uint32_t slice = 0; slice < 3; ++slice) {
          require(sender.reserve(1000) != nullptr, "room");
          FrameHeader header = rank.header(0, 1000);
          header.slice = slice;  // on each of the flows
          sender.commit(header);
        }
      }
      for (const std::uint32_t other : rank.others()) {
        Receiver& receiver = transport.receiver(other, 0, 0);
        for (std::uint32_t slice = 0; slice < 3; ++slice) {
          eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "it arrives");
          require(receiver.front()->slice == slice, "in order");
          receiver.release();
        }
      }
      require(transport.drain(kPatience), "credits too");
      rank.meet();
    });
  }
}

constexpr std::array kFailureTests{Test{"nonsense", nonsense},
                                   Test{"noise", noise},
                                   Test{"dead_peer", dead_peer},
                                   Test{"half_a_frame", half_a_frame},
                                   Test{"undelivered", undelivered},
                                   Test{"gone_before_the_first_frame", gone_before_the_first_frame},
                                   Test{"sent_to_an_idle_rank", sent_to_an_idle_rank},
                                   Test{"both_at_once", both_at_once}};

}  // namespace

std::span<const Test> failure_tests() { return kFailureTests; }

}  // namespace tests

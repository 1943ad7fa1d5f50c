// Streams of random shape deliver what was sent, in order; flow control holds; an idle transport is quiet.
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "core/program/algorithms/algorithms.hpp"
#include "core/program/depth.hpp"
#include "core/program/prepared_program.hpp"
#include "core/tcp/tcp_flow.hpp"
#include "courier.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

void streams(std::uint64_t seed) {
  const Scenario scenario = random_scenario(seed);
  run_ranks(scenario.shape.ranks, [&scenario](Rank& rank) {
    std::vector<TcpPeer> peers;
    std::unique_ptr<TcpMeeting> meeting;
    if (scenario.when_needed) {
      meeting = rank.meet_for_control(scenario.options, peers);
    } else {
      peers = rank.connect(scenario.options);
    }
    TcpTransport transport(scenario.shape, rank.identity(), peers, meeting.get());
    TcpControl control(rank.identity(), peers, meeting.get());
    Courier courier(rank, scenario, transport);
    eventually([&] { return courier.step(); }, "all frames arrive");
    // Leaving now, without meeting the others, must lose nothing, even while some of them are still connecting.
    require(transport.drain(kPatience), "what was sent is delivered");
    control.leave();
  });
}

constexpr StreamShape kSmall{.ranks = 2, .channels = 1, .windows = 1, .depth = 3, .slot_bytes = 100};

/// A sender may be `depth` frames ahead, no more; every release frees a slot.
void flow_control(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpTransport transport(kSmall, rank.identity(), peers);
    if (rank.rank == 0) {
      Sender& sender = transport.sender(1, 0, 0);
      require_in("a frame of 101 bytes was committed to a slot of 100",
                 error_of([&] { sender.commit(rank.header(0, 101)); }).what());
      require_in("a frame of 101 bytes for rank 1 does not fit a slot of 100",
                 error_of([&] { (void)sender.reserve(101); }).what());
      const auto send = [&] { sender.commit(rank.header(0, 100)); };
      for (std::uint32_t i = 0; i < kSmall.depth; ++i) {
        require(sender.reserve(100) != nullptr, "room");
        send();
      }
      require(sender.reserve(100) == nullptr, "full");
      require_in("a slot of 0", error_of(send).what());
      transport.wake();
      rank.meet();
      while (transport.progress()) {
      }
      require(sender.reserve(100) == nullptr, "taking them from the kernel frees nothing; only release() does");
      rank.meet();
      for (int round = 0; round < 10; ++round) {
        eventually([&] { return transport.progress(), sender.reserve(100) != nullptr; }, "room comes back");
        send();
        require(sender.reserve(100) == nullptr, "for one frame only");
        transport.wake();
        rank.meet();
      }
    } else {
      Receiver& receiver = transport.receiver(0, 0, 0);
      rank.meet();
      eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "the first frame comes");
      rank.meet();
      for (int round = 0; round < 10; ++round) {
        eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "a frame comes");
        receiver.release();
        transport.wake();
        rank.meet();
      }
    }
    rank.meet();
  });
}

/// Where a stream may hold more frames than `depth`, that many of them may be long, whatever is between them.
void short_frames(std::uint64_t) {
  constexpr std::uint32_t kLong = StreamShape::kShortFrame + 1, kShort = StreamShape::kShortFrame;
  constexpr StreamShape shape{
      .ranks = 2, .channels = 1, .windows = 1, .depth = 2, .slot_bytes = 2 * kShort, .short_frames = 5};
  constexpr std::array kLengths{kLong, kShort, kLong, 100U, kShort, kShort, kLong, kLong};
  const auto filling = [](std::size_t frame) { return std::byte{static_cast<unsigned char>(frame + 1)}; };
  run_ranks(2, [&](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpTransport transport(shape, rank.identity(), peers);
    if (rank.rank == 0) {
      Sender& sender = transport.sender(1, 0, 0);
      std::size_t next = 0;
      const auto send = [&] {
        std::byte* const room = sender.reserve(kLengths[next]);
        if (room == nullptr) return false;
        std::fill_n(room, kLengths[next], filling(next));
        sender.commit(rank.header(0, kLengths[next++]));
        return true;
      };
      for (int frame = 0; frame < 3; ++frame) require(send(), "room for two long frames and a short one");
      require(sender.reserve(kLong) == nullptr, "full for a third long one");
      for (int frame = 0; frame < 2; ++frame) require(send(), "room for five in all");
      require(sender.reserve(1) == nullptr, "full");
      transport.wake();
      rank.meet();
      eventually([&] { return transport.progress(), send(); }, "a short one follows the first that is released");
      require(sender.reserve(kLong) == nullptr && sender.reserve(1) == nullptr, "full again");
      transport.wake();
      rank.meet();
      while (next < kLengths.size()) {
        eventually([&] { return transport.progress(), send(); }, "room comes back");
        transport.wake();
      }
      require(transport.drain(kPatience), "the last frames reach the other");
    } else {
      Receiver& receiver = transport.receiver(0, 0, 0);
      const auto take = [&](std::size_t frame) {
        eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "a frame comes");
        require(receiver.front()->length == kLengths[frame], "in order");
        require(std::all_of(receiver.payload(), receiver.payload() + kLengths[frame],
                            [&](std::byte byte) { return byte == filling(frame); }),
                "unchanged");
        receiver.release();
        transport.wake();
      };
      rank.meet();
      take(0);
      rank.meet();
      for (std::size_t frame = 1; frame < kLengths.size(); ++frame) take(frame);
    }
    rank.meet();
  });
}

/// A payload goes to its announced place if the frame is the announced one; forgotten places are no longer written.
void expected_places(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpTransport transport(kSmall, rank.identity(), peers);
    if (rank.rank == 0) {
      Sender& sender = transport.sender(1, 0, 0);
      const std::array payload{std::byte{7}, std::byte{8}};
      rank.meet();
      for (std::uint32_t slice = 0; slice < kSmall.depth; ++slice) {
        FrameHeader header = rank.header(0, 2);
        header.slice = slice;
        require(sender.send(header, payload.data()), "room");
      }
      require(!sender.send(rank.header(0, 2), payload.data()), "full");
      transport.wake();
    } else {
      Receiver& receiver = transport.receiver(0, 0, 0);
      std::array<std::array<std::byte, 2>, 3> places{};
      for (std::uint32_t slice = 0; slice < places.size(); ++slice) {
        FrameHeader header = rank.header(0, 2);
        header.slice = slice == 1 ? 99 : slice;
        receiver.expect(slice, header, places[slice].data());
      }
      receiver.expect(kSmall.depth, rank.header(0, 2), nullptr);  // beyond what may arrive: harmless
      rank.meet();
      for (std::uint32_t slice = 0; slice < places.size(); ++slice) {
        eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "a frame comes");
        if (slice == 2) receiver.forget_places();
        require((receiver.payload() == places[slice].data()) == (slice == 0), "only the first lies where it belongs");
        require(receiver.payload()[0] == std::byte{7} && receiver.payload()[1] == std::byte{8}, "unchanged");
        receiver.release();
      }
      require(places[1][0] == std::byte{0}, "what is not expected goes to its slot");
    }
    rank.meet();
  });
}

/// For a rank that is about to sleep, progress() reports when nothing moves, and the descriptor when something may.
void quiet(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1});  // with two, a timer is an event, too
    TcpTransport transport(kSmall, rank.identity(), peers);
    require(transport.descriptors().size() == 1, "one descriptor");
    const int descriptor = transport.descriptors()[0];
    for (int round = 0; round < 100; ++round) {
      transport.sleeping(true);
      eventually([&] { return !transport.progress(); }, "quiet");
      require(!readable(descriptor, milliseconds(0)), "quiet");
      rank.meet();
      if (static_cast<int>(rank.rank) == round % 2) {
        Sender& sender = transport.sender(1 - rank.rank, 0, 0);
        require(sender.reserve(0) != nullptr, "room");
        sender.commit(rank.header(0, 0));
        transport.wake();
        require(readable(descriptor, kPatience), "the credit is seen");
      } else {
        Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
        require(readable(descriptor, kPatience), "the frame is seen");
        transport.sleeping(false);
        eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "and is there");
        receiver.release();
        transport.wake();
      }
    }
    rank.meet();
  });
}

/// Two ranks that sleep on their descriptor whenever progress() has nothing to do: no wakeup may be lost.
void asleep(std::uint64_t) {
  const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 6, .slot_bytes = 300'000};
  run_ranks(2, [&shape](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.send_buffer = 16384, .receive_buffer = 16384});
    TcpTransport transport(shape, rank.identity(), peers);
    Sender& sender = transport.sender(1 - rank.rank, 0, 0);
    Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
    int to_send = 60;
    int to_receive = 60;
    while (to_send + to_receive > 0) {
      bool moved = false;
      for (; to_send > 0 && sender.reserve(shape.slot_bytes) != nullptr; --to_send, moved = true) {
        sender.commit(rank.header(0, shape.slot_bytes));
      }
      for (; receiver.front() != nullptr; --to_receive, moved = true) receiver.release();
      moved |= transport.progress();
      if (moved) continue;
      transport.sleeping(true);
      if (!transport.progress()) require(readable(transport.descriptors()[0], kPatience), "woken");
      transport.sleeping(false);
    }
    require(transport.drain(kPatience), "the last frames reach the other");
    rank.meet();
  });
}

void unknown_streams(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    TcpTransport transport(kSmall, rank.identity(), peers);
    for (const std::uint32_t peer : {rank.rank, 2U, 99U}) {
      require_in("rank " + std::to_string(peer) + " is not reached by TCP",
                 error_of([&] { (void)transport.sender(peer, 0, 0); }).what());
    }
    rank.meet();
  });
}

/// Both ends of a TCP connection on this host; the second is non-blocking.
std::pair<UniqueFd, UniqueFd> connected() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener.get(), where, size) == 0 && ::listen(listener.get(), 1) == 0, "a listener");
  require(::getsockname(listener.get(), where, &size) == 0, "its address");
  UniqueFd near(::socket(AF_INET, SOCK_STREAM, 0));
  require(::connect(near.get(), where, size) == 0, "a connection");
  return {std::move(near), UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK))};
}

struct Frames : FrameSink {
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  int complete = 0;

  std::byte* place(const FramePrefix&, const FrameHeader&) override { return memory.data(); }
  void arrived(const FramePrefix&) override { ++complete; }
  bool credited(const FramePrefix&) override { return true; }
};

/// A read that fills its room exactly ends one frame and begins a smaller one, whose rest must wake us, however large
/// the previous frame's threshold was.
void filled_room(std::uint64_t) {
  constexpr std::size_t kHead = sizeof(FramePrefix) + sizeof(FrameHeader), kAside = sizeof(TcpFlow::Aside);
  constexpr std::size_t kFirst = 12'000, kRest = 5'000;
  auto [near, far] = connected();
  const int socket = far.get();
  TcpFlow flow;
  flow.open(TcpStream(std::move(far)), {});
  Frames frames;

  std::vector<std::byte> bytes(kHead + kFirst + kAside + kRest);
  const auto head = [&](std::size_t at, std::size_t length) {
    FrameHeader header;
    header.length = static_cast<std::uint32_t>(length);
    const FramePrefix prefix;
    std::memcpy(bytes.data() + at, &prefix, sizeof(prefix));
    std::memcpy(bytes.data() + at + sizeof(prefix), &header, sizeof(header));
  };
  head(0, kFirst);
  head(kHead + kFirst, kAside - kHead + kRest);
  std::size_t sent = 0;
  const auto send = [&](std::size_t count, std::size_t unread = 0) {
    require(::write(near.get(), bytes.data() + sent, count) == static_cast<ssize_t>(count), "written");
    sent += count;
    int there = 0;
    while (there < static_cast<int>(unread + count)) require(::ioctl(socket, FIONREAD, &there) == 0, "counted");
  };
  TcpFlow::Aside aside;
  send(kHead + 2'000);
  require(flow.read(frames, aside) == TcpFlow::Outcome::moved && !flow.readable(), "a part of the first frame");
  flow.await_payload();
  send(100);
  require(!readable(socket, milliseconds(10)), "too little to wake for");
  send(kFirst - 2'100 + kAside, 100);
  flow.became_ready(EPOLLIN);
  require(flow.read(frames, aside) == TcpFlow::Outcome::moved && flow.readable(), "as much as there was room for");
  require(flow.read(frames, aside) == TcpFlow::Outcome::nothing && frames.complete == 1, "and no more");
  send(kRest);
  require(readable(socket, kPatience), "woken");
  require(flow.read(frames, aside) == TcpFlow::Outcome::moved && frames.complete == 2, "both frames");
}

/// Operations in flight have windows of their own. On every flow, an earlier operation's data precedes a later one's,
/// however many slices each message has; and all flows are used.
void launched_first(std::uint64_t) {
  constexpr std::uint32_t kLength = 10;
  // Windows 2 and 3 are of normal priority, as is 6, of point-to-point.
  const StreamShape shape{.ranks = 2, .channels = 1, .windows = 7, .depth = 4, .slot_bytes = 100};
  run_ranks(2, [&shape](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 2});
    if (rank.rank == 1) {
      TcpTransport transport(shape, rank.identity(), peers);
      for (const auto& [window, slices] : {std::pair{2U, 3U}, {3U, 2U}, {6U, 3U}, {2U, 1U}}) {
        for (std::uint32_t slice = 0; slice < slices; ++slice) {
          Sender& sender = transport.sender(0, 0, window);
          require(sender.reserve(kLength) != nullptr, "room");
          FrameHeader header = rank.header(0, kLength);
          header.slice = slice;
          sender.commit(header);
        }
      }
      transport.wake();
      require(transport.drain(kPatience), "all of it arrives");
      rank.meet();
      return;
    }
    rank.meet();
    std::array<std::vector<std::uint32_t>, 2> windows;
    for (std::size_t flow = 0; flow < windows.size(); ++flow) {
      std::array<std::byte, sizeof(FramePrefix) + sizeof(FrameHeader) + kLength> frame{};
      while (::recv(peers[0].flows[flow].get(), frame.data(), frame.size(), MSG_DONTWAIT) ==
             static_cast<ssize_t>(frame.size())) {
        FramePrefix prefix;
        std::memcpy(&prefix, frame.data(), sizeof(prefix));
        windows[flow].push_back(prefix.window);
      }
    }
    require(windows[0] == std::vector<std::uint32_t>{2, 2, 3, 6, 6, 2}, "the first flow, in the order of launches");
    require(windows[1] == std::vector<std::uint32_t>{2, 3, 6}, "the second one too");
  });
}

/// What waits for the kernel is sent in turns: channels of an operation by bytes, operations one after another, higher
/// priorities first, and credits before all. Nothing overtakes a frame that the kernel has partly taken.
void turns(std::uint64_t) {
  constexpr std::uint32_t kLength = 40;
  constexpr std::uint32_t kBegun = 8 << 20;  // more than the kernel takes
  const std::vector<std::byte> payload(kBegun);
  auto [near, far] = connected();
  TcpFlow flow;
  const auto push = [&](std::uint32_t channel, std::uint32_t window, std::uint64_t number, std::uint32_t length,
                        Priority priority = Priority::normal) {
    FrameHeader header;
    header.length = length;
    flow.push({.number = number, .window = window, .channel = channel}, header, payload.data(), priority);
  };
  flow.open(TcpStream(std::move(far)), {});
  push(9, 0, 0, kBegun);
  require(flow.write() == TcpFlow::Outcome::moved && flow.unsent_frames() == 1, "a part of the first frame");
  for (std::uint64_t number = 0; number < 4; ++number) push(0, 0, number, kLength);
  for (std::uint64_t number = 0; number < 2; ++number) push(1, 0, number, 2 * kLength);
  push(1, 1, 7, kLength);
  push(2, 0, 0, kLength);  // behind another operation's
  push(3, 2, 0, kLength, Priority::low);
  for (std::uint64_t number = 0; number < 2; ++number) push(4, 3, number, kLength, Priority::high);
  push(2, 0, 1, kLength);  // before what is low
  for (std::uint64_t number = 0; number < 2; ++number) {
    flow.push({.kind = FramePrefix::kCredit, .number = number, .window = 0, .channel = 5});
  }

  std::vector<std::byte> bytes;
  std::array<std::byte, 1 << 16> piece;
  while (flow.unsent_entries() > 0) {
    flow.became_ready(EPOLLOUT);
    (void)flow.write();
    while (readable(near.get(), milliseconds(0))) {
      const ssize_t n = ::recv(near.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      require(n > 0, "received");
      bytes.insert(bytes.end(), piece.begin(), piece.begin() + n);
    }
  }
  flow.shut();
  for (ssize_t n = 1; n > 0;) {
    n = ::recv(near.get(), piece.data(), piece.size(), 0);
    if (n > 0) bytes.insert(bytes.end(), piece.begin(), piece.begin() + n);
  }

  using Sent = std::array<std::uint64_t, 3>;  // channel, window, number
  std::vector<Sent> sent;
  for (std::size_t at = 0; at < bytes.size();) {
    FramePrefix prefix;
    FrameHeader header;
    std::memcpy(&prefix, bytes.data() + at, sizeof(prefix));
    at += sizeof(prefix);
    sent.push_back({prefix.channel, prefix.window, prefix.number});
    if (prefix.kind == FramePrefix::kCredit) continue;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    at += sizeof(header) + header.length;
  }
  const std::vector<Sent> expected{{9, 0, 0}, {5, 0, 0}, {5, 0, 1}, {4, 3, 0}, {4, 3, 1},
                                   {0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {0, 0, 2}, {1, 0, 1},
                                   {0, 0, 3}, {1, 1, 7}, {2, 0, 0}, {2, 0, 1}, {3, 2, 0}};
  require(sent == expected, "in turns");
}

/// Between the parts of a long frame, more urgent ones are sent; it arrives whole, also where its first part was
/// placed.
void parts(std::uint64_t seed) {
  constexpr std::uint32_t kLong = 8 << 20;  // more than the kernel takes
  constexpr StreamShape shape{.ranks = 2, .channels = 1, .windows = 4, .depth = 2, .slot_bytes = kLong};
  run_ranks(2, [&](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect({.flows = 1, .receive_buffer = 65536});
    std::vector<std::byte> payload(kLong), place(kLong);
    fill(payload.data(), kLong, std::mt19937_64(seed));
    const std::uint32_t urgent = 2;  // a window of high priority
    require(shape.priority_of(0) == Priority::low && shape.priority_of(urgent) == Priority::high, "priorities");
    TcpTransport transport(shape, rank.identity(), peers);
    if (rank.rank == 0) {
      rank.meet();
      require(transport.sender(1, 0, 0).send(rank.header(0, kLong), payload.data()), "room");
      require(transport.unsent(), "the kernel has not taken all of it");
      require(transport.sender(1, 0, urgent).send(rank.header(0, 3), payload.data()), "room");
      std::ranges::fill(payload, std::byte{0});
      rank.meet();
      eventually([&] { return transport.progress(), !transport.unsent(); }, "all is sent");
    } else {
      Receiver& first = transport.receiver(0, 0, 0);
      if (seed % 2 == 0) first.expect(0, rank.header(0, kLong), place.data());
      rank.meet();
      rank.meet();
      eventually([&] { return transport.progress(), transport.receiver(0, 0, urgent).front() != nullptr; }, "it comes");
      require(first.front() == nullptr, "before the long frame, which had begun");
      if (seed % 3 == 0) first.forget_places();
      eventually([&] { return transport.progress(), first.front() != nullptr; }, "the long frame comes");
      require((first.payload() == place.data()) == (seed % 2 == 0 && seed % 3 != 0), "where it belongs");
      require(holds(first.payload(), kLong, std::mt19937_64(seed)), "unchanged");
    }
    rank.meet();
  });
}

/// Two ranks. Rank 0 sends `depth` full frames, of which rank 1 reads nothing yet, and leaves.
struct Left {
  Left(Rank& rank, const StreamShape& shape, std::uint32_t flows, std::uint64_t seed)
      : peers(rank.connect({.flows = flows})),
        transport(std::make_unique<TcpTransport>(shape, rank.identity(), peers)),
        payload(shape.slot_bytes) {
    fill(payload.data(), shape.slot_bytes, std::mt19937_64(seed));
    rank.meet();
    if (rank.rank == 0) {
      for (std::uint32_t frame = 0; frame < shape.depth; ++frame) {
        require(transport->sender(1, 0, 0).send(rank.header(0, shape.slot_bytes), payload.data()), "room");
      }
      require(transport->drain(kPatience), "the peer's kernel takes all of them");
      transport.reset();
    }
    rank.meet();
  }

  std::vector<TcpPeer> peers;
  std::unique_ptr<TcpTransport> transport;
  std::vector<std::byte> payload;
};

/// A peer that reads nothing yet takes as many long frames as a stream may have on its way.
void unread(std::uint64_t seed) {
  constexpr StreamShape shape{.ranks = 2, .channels = 1, .windows = 4, .depth = 4, .slot_bytes = 256 << 10};
  run_ranks(2, [&](Rank& rank) { const Left left(rank, shape, 1, seed); });
}

/// What a peer had sent when it left arrives, even if this rank could not answer it in the meantime.
void left_behind(std::uint64_t seed) {
  constexpr StreamShape shape{.ranks = 2, .channels = 1, .windows = 4, .depth = 16, .slot_bytes = 64 << 10};
  run_ranks(2, [&](Rank& rank) {
    const Left left(rank, shape, 2, seed);
    for (std::uint32_t frame = 0; rank.rank == 1 && frame < shape.depth; ++frame) {
      Receiver& receiver = left.transport->receiver(0, 0, 0);
      eventually([&] { return left.transport->progress(), receiver.front() != nullptr; }, "all frames arrive");
      require(holds(receiver.payload(), shape.slot_bytes, std::mt19937_64(seed)), "unchanged");
      receiver.release();
      left.transport->sleeping(true);  // credits: the first one is answered by a reset, the next one fails
      left.transport->sleeping(false);
    }
  });
}

/// Frames that fit a part, and whatever goes over one of several sockets, are sent as they are. Parts name their
/// stream, and begin anywhere in a frame.
void cut_frames(std::uint64_t) {
  const std::vector<std::byte> payload(3 * TcpFlow::kPart);
  TcpFlow flow;
  FrameHeader header;
  header.length = TcpFlow::kPart;
  flow.push_in_parts({}, header, payload.data(), Priority::normal);
  require(flow.unsent_entries() == 1 && flow.unsent_frames() == 1, "whole");
  header.length = 2 * TcpFlow::kPart + 1;
  flow.push_in_parts({.number = 1}, header, payload.data(), Priority::normal);
  require(flow.unsent_entries() == 5 && flow.unsent_frames() == 2, "a head and three parts are one frame");
}

/// What a slice of a message of so many KiB is.
std::uint32_t slice_of(std::string_view name, Collective collective, std::uint32_t ranks, std::size_t message,
                       std::size_t sockets = 1) {
  const PreparedProgram program(build(name, collective, ranks));
  const bool shared = collective == Collective::all_reduce && name != "direct";  // each rank has a chunk of the block
  return program.slice_bytes(message * (shared ? ranks : 1) * 1024 / 4, 4, 128 * 1024, 512 * 1024, sockets) / 1024;
}

/// Of an all_reduce among four ranks of which the last one has this share, and each of the others 10.
std::uint32_t slice_of_shares(std::uint32_t last, std::size_t message) {
  const PreparedProgram program(build("two_shot", Collective::all_reduce, 4, 0, {}, {10, 10, 10, last}));
  return program.slice_bytes(message * (30 + last) / 10 * 1024 / 4, 4, 128 * 1024, 512 * 1024, 1) / 1024;
}

/// Slices are long where nobody waits for what others pass on, or messages are much longer; and half a message at most.
void slices(std::uint64_t) {
  using enum Collective;
  for (const auto& [name, collective] : {std::pair("direct", all_gather), std::pair("ring", all_gather),
                                         std::pair("two_shot", all_reduce), std::pair("ring", all_reduce)}) {
    for (const std::uint32_t ranks : {2U, 4U, 7U}) {
      require(slice_of(name, collective, ranks, 64) == 128, "short");
      require(slice_of(name, collective, ranks, 512) == 256, "half");
      require(slice_of(name, collective, ranks, 1024) == 512, "half");
      require(slice_of(name, collective, ranks, 32 << 10) == 512, "the longest");
    }
  }
  // A chain of 5: three hops without the root's own work, so 3/64 of a slice per slice.
  require(slice_of("ring", broadcast, 5, 16 << 10) == 128 && slice_of("ring", broadcast, 5, 96 << 10) == 512,
          "a chain");
  require(slice_of("direct", all_gather, PreparedProgram::kManyRanks, 32 << 10) == 128, "many ranks");
  require(slice_of("ring", all_reduce, 4, 16 << 10, 2) == 256 && slice_of("ring", all_reduce, 4, 1024, 2) == 128,
          "two sockets, one of which may have a slice more");
  for (const std::size_t message : {1UL << 10, 32UL << 10}) {
    require(slice_of_shares(5, message) == 512, "everybody sends sums while the last ones come");
  }
  require(slice_of_shares(0, 32 << 10) == 256 && slice_of_shares(0, 8 << 10) == 64 && slice_of_shares(0, 1024) == 32,
          "one that has sent all waits for the sums of the last slices");
  const ProgramDepth chain = depth_of(build("ring", broadcast, 5));
  require(chain.hops == 4 && chain.busiest == 1, "a chain of 5");
  const ProgramDepth ring = depth_of(build("ring", all_reduce, 5));
  require(ring.hops == 8 && ring.busiest == 8, "a ring of 5");
}

constexpr std::array kStreamTests{Test{"streams", streams},
                                  Test{"flow_control", flow_control},
                                  Test{"short_frames", short_frames},
                                  Test{"expected_places", expected_places},
                                  Test{"quiet", quiet},
                                  Test{"asleep", asleep},
                                  Test{"filled_room", filled_room},
                                  Test{"launched_first", launched_first},
                                  Test{"turns", turns},
                                  Test{"parts", parts},
                                  Test{"unread", unread},
                                  Test{"left_behind", left_behind},
                                  Test{"cut_frames", cut_frames},
                                  Test{"slices", slices},
                                  Test{"unknown_streams", unknown_streams}};

}  // namespace

std::span<const Test> stream_tests() { return kStreamTests; }

}  // namespace tests

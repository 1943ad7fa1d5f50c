// One of several sockets to a peer fails: the others take over, and every frame arrives once.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>

#include "courier.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

/// Descriptors of a transport's sockets, by which a test ends the connections below it.
class Cutter {
 public:
  Cutter(const Rank& rank, std::span<const TcpPeer> peers, std::uint64_t seed) : random_(seed * 64 + rank.rank) {
    for (const TcpPeer& peer : peers) {
      if ((peer.rank < rank.rank) == ((peer.rank + rank.rank + seed) % 2 == 0)) continue;  // the other end does it
      std::vector<std::size_t> order(peer.flows.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::shuffle(order, random_);
      order.pop_back();
      for (const std::size_t flow : order) {
        sockets_.emplace_back(fcntl(peer.flows[flow].get(), F_DUPFD_CLOEXEC, 0));
        require(static_cast<bool>(sockets_.back()), "a second descriptor");
      }
    }
    std::ranges::shuffle(sockets_, random_);
  }

  /// Now and then cuts one; what both kernels held for the other end is gone.
  void step() {
    if (sockets_.empty() || random_() % 8 != 0) return;
    ::shutdown(sockets_.back().get(), SHUT_RDWR);
    sockets_.pop_back();
  }

 private:
  std::mt19937_64 random_;
  std::vector<UniqueFd> sockets_;
};

/// Sockets of every pair are cut while frames are on their way, in random order, all but one.
void cut_flows(std::uint64_t seed) {
  Scenario scenario = random_scenario(seed);
  scenario.options.flows = 2 + scenario.options.flows % 3;
  run_ranks(scenario.shape.ranks, [&scenario, seed](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect(scenario.options);
    Cutter cutter(rank, peers, seed);
    TcpTransport transport(scenario.shape, rank.identity(), peers);
    TcpControl control(rank.identity(), peers);
    Courier courier(rank, scenario, transport);
    eventually([&] { return cutter.step(), courier.step(); }, "all frames arrive");
    require(transport.drain(kPatience), "what was sent is delivered");
    control.leave();
  });
}

/// Both of two sockets are cut, one after the other; each time another takes its place. At the end, all goes over
/// these.
void cut_flows_are_replaced(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 4, .slot_bytes = 4000};
    std::vector<TcpPeer> peers;
    const std::unique_ptr<TcpMeeting> meeting = rank.meet_for_control(kTwoFlows, peers);
    connect_data(*meeting, rank.rank, peers);
    std::vector<UniqueFd> first;
    for (const TcpStream& socket : peers[0].flows) first.emplace_back(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    TcpTransport transport(shape, rank.identity(), peers, meeting.get());
    Sender& sender = transport.sender(1 - rank.rank, 0, 0);
    Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    const auto step = [&] {
      if (std::byte* const room = sender.reserve(shape.slot_bytes)) {
        fill(room, shape.slot_bytes, std::mt19937_64(sent));
        FrameHeader header = rank.header(0, shape.slot_bytes);
        header.slice = sent++;
        sender.commit(header);
      }
      transport.progress();
      if (const FrameHeader* const header = receiver.front()) {
        require(header->slice == received, "once, and in order");
        require(holds(receiver.payload(), header->length, std::mt19937_64(received)), "the bytes of the frame");
        receiver.release();
        ++received;
      }
    };
    const auto lost = [&transport] {
      const std::vector<Wires::Wire> wires = transport.wires()->all();
      require(wires.size() == 2, "a wire of each place");
      return std::ranges::count(wires, true, &Wires::Wire::lost);
    };
    for (const UniqueFd& socket : first) {
      rank.gathering.settle(step);
      if (rank.rank == 0) ::shutdown(socket.get(), SHUT_RDWR);
      eventually([&] { return step(), lost() == 1; }, "it is lost");
      eventually([&] { return step(), lost() == 0; }, "another takes its place");
    }
    const std::uint32_t more = received + 100;
    eventually([&] { return step(), received >= more; }, "frames over the new sockets");
    rank.gathering.settle(step);
    rank.meet();  // or this rank's sockets would close while the other one takes its last step
  });
}

/// Frames taken by the kernel are lost with their socket after the last call that sent any: leaving waits until they
/// have gone over the other.
void cut_before_leaving(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 8, .slot_bytes = 4000};
    std::vector<TcpPeer> peers = rank.connect({.flows = 2, .send_buffer = 65536, .receive_buffer = 65536});
    const UniqueFd first(fcntl(peers[0].flows[0].get(), F_DUPFD_CLOEXEC, 0));
    TcpTransport transport(shape, rank.identity(), peers);
    if (rank.rank == 0) {
      Sender& sender = transport.sender(1, 0, 0);
      for (std::uint32_t slice = 0; slice < shape.depth; ++slice) {
        require(sender.reserve(4000) != nullptr, "room");
        FrameHeader header = rank.header(0, 4000);
        header.slice = slice;
        sender.commit(header);
      }
      transport.wake();
      ::shutdown(first.get(), SHUT_RDWR);
      require(transport.drain(kPatience), "delivered");
      rank.meet();
      rank.meet();
      return;
    }
    rank.meet();
    Receiver& receiver = transport.receiver(0, 0, 0);
    for (std::uint32_t slice = 0; slice < shape.depth; ++slice) {
      eventually([&] { return transport.progress(), receiver.front() != nullptr; }, "it arrives");
      require(receiver.front()->slice == slice && receiver.front()->length == 4000, "once, and in order");
      receiver.release();
    }
    while (transport.progress()) {
    }
    require(receiver.front() == nullptr, "no more");
    rank.meet();
  });
}

/// The first of two sockets is cut while the second is still being made, which then carries what the first did not.
void cut_before_the_others_are_open(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 8, .slot_bytes = 4000};
    std::vector<TcpStream> sockets = std::move(rank.connect()[0].flows);
    const UniqueFd first(fcntl(sockets[0].get(), F_DUPFD_CLOEXEC, 0));
    const auto nothing = [](auto&&...) {};
    TcpLink link(shape, rank.identity(), 1 - rank.rank, 2, {.call = nothing, .avoid = nothing, .replace = nothing});
    link.open(0, std::move(sockets[0]), {}, "the other end");
    Sender& sender = link.sender({0, 0});
    for (std::uint32_t slice = 0; slice < shape.depth; ++slice) {
      std::byte* const room = sender.reserve(shape.slot_bytes);
      require(room != nullptr, "room");
      fill(room, shape.slot_bytes, std::mt19937_64(slice));
      FrameHeader header = rank.header(0, shape.slot_bytes);
      header.slice = slice;
      sender.commit(header);
    }
    rank.meet();
    ::shutdown(first.get(), SHUT_RDWR);
    TcpFlow::Aside aside;
    const auto step = [&] {
      link.write();
      for (TcpFlow& flow : link.flows()) {
        flow.became_ready(EPOLLIN | EPOLLOUT);
        if (flow.readable()) link.read(flow, aside);
      }
      [[maybe_unused]] const bool again = link.look_after(Clock::now());
      require(!link.ended(), "another socket is being made");
    };
    eventually([&] { return step(), link.flows()[0].socket() < 0; }, "the end is noticed");
    link.open(1, std::move(sockets[1]), {}, "the other end");
    Receiver& receiver = link.receiver({0, 0});
    for (std::uint32_t slice = 0; slice < shape.depth; ++slice) {
      eventually([&] { return step(), receiver.front() != nullptr; }, "it arrives");
      require(receiver.front()->slice == slice, "once, and in order");
      require(holds(receiver.payload(), shape.slot_bytes, std::mt19937_64(slice)), "the bytes of the frame");
      receiver.release();
    }
    rank.gathering.settle(step);
    rank.meet();  // or this rank's sockets would close while the other one takes its last step
  });
}

/// A frame that comes twice is refused while no socket was lost.
void repetition_without_loss(std::uint64_t) {
  run_ranks(2, [](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 4, .slot_bytes = 1000};
    std::vector<TcpPeer> peers = rank.connect();
    if (rank.rank == 1) {
      struct {
        FramePrefix prefix;
        FrameHeader header;
      } frame{{.token = rank.identity().prefix_token()}, rank.header(0, 0)};
      for (int times = 0; times < 2; ++times) write_bytes(peers[0].flows[0].get(), bytes_of(frame));
      rank.meet();
      return;
    }
    TcpTransport transport(shape, rank.identity(), peers);
    const Error error = error_of([&] {
      for (const Clock::time_point end = Clock::now() + kPatience; Clock::now() < end;) transport.progress();
    });
    require(error.kind() == Error::Kind::mismatch, error.what());
    require_in("no slot was free for frame 0", error.what());
    rank.meet();
  });
}

constexpr std::array kFailoverTests{Test{"cut_flows", cut_flows},
                                    Test{"cut_flows_are_replaced", cut_flows_are_replaced},
                                    Test{"cut_before_leaving", cut_before_leaving},
                                    Test{"cut_before_the_others_are_open", cut_before_the_others_are_open},
                                    Test{"repetition_without_loss", repetition_without_loss}};

}  // namespace

std::span<const Test> failover_tests() { return kFailoverTests; }

}  // namespace tests

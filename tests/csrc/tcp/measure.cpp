// Measured on the loopback interface: throughput of one stream by flows and slot size, and the latency of small frames.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void stream_one_way(std::uint32_t flows, std::uint32_t slot_bytes, std::uint32_t depth, bool both) {
  run_ranks(2, [=](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = depth, .slot_bytes = slot_bytes};
    std::vector<TcpPeer> peers = rank.connect({.flows = flows});
    TcpTransport transport(shape, rank.identity(), peers);
    const std::size_t frames = (std::size_t{1} << 30) / slot_bytes;
    std::vector<std::byte> data(slot_bytes, std::byte{7});
    Sender& sender = transport.sender(1 - rank.rank, 0, 0);
    Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
    std::size_t to_send = both || rank.rank == 0 ? frames : 0;
    std::size_t to_receive = both || rank.rank == 1 ? frames : 0;
    rank.meet();
    const Clock::time_point start = Clock::now();
    while (to_send > 0 || to_receive > 0) {
      if (to_send > 0) {
        if (std::byte* room = sender.reserve(slot_bytes)) {
          std::memcpy(room, data.data(), slot_bytes);
          sender.commit(rank.header(0, slot_bytes));
          --to_send;
        }
      }
      if (!transport.progress()) std::this_thread::yield();  // ranks may share a core here
      if (to_receive > 0 && receiver.front() != nullptr) {
        std::memcpy(data.data(), receiver.payload(), slot_bytes);
        receiver.release();
        --to_receive;
      }
    }
    transport.drain(seconds(10));
    const double elapsed = seconds_since(start);
    if (rank.rank == 1) {
      std::printf("%-8s %5u %6u %9u %8.2f\n", both ? "both" : "one", flows, depth, slot_bytes / 1024,
                  static_cast<double>(frames * slot_bytes) / elapsed / 1e9);
      std::fflush(stdout);
    }
    rank.meet();
  });
}

void ping_pong(std::uint32_t flows) {
  run_ranks(2, [flows](Rank& rank) {
    const StreamShape shape{.ranks = 2, .channels = 1, .windows = 1, .depth = 4, .slot_bytes = 65536};
    std::vector<TcpPeer> peers = rank.connect({.flows = flows});
    TcpTransport transport(shape, rank.identity(), peers);
    Sender& sender = transport.sender(1 - rank.rank, 0, 0);
    Receiver& receiver = transport.receiver(1 - rank.rank, 0, 0);
    std::vector<double> trips;
    for (int round = 0; round < 20'000; ++round) {
      const Clock::time_point start = Clock::now();
      for (int turn = 0; turn < 2; ++turn) {
        if (static_cast<int>(rank.rank) == turn) {
          while (sender.reserve(8) == nullptr) transport.progress();
          sender.commit(rank.header(0, 8));
          transport.progress();
        } else {
          while (receiver.front() == nullptr) transport.progress();
          receiver.release();
        }
      }
      trips.push_back(seconds_since(start) * 1e6 / 2);
    }
    transport.drain(seconds(10));
    if (rank.rank == 0) {
      std::ranges::sort(trips);
      std::printf("8 B one way, %u flows: %.1f us minimum, %.1f us median\n", flows, trips.front(),
                  trips[trips.size() / 2]);
    }
    rank.meet();
  });
}

}  // namespace

void measure() {
  std::printf("%-8s %5s %6s %9s %8s\n", "ways", "flows", "depth", "slot KiB", "GB/s");
  for (const std::uint32_t flows : {1U, 2U, 4U}) {
    for (const std::uint32_t slot_kib : {64U, 128U, 256U, 1024U}) stream_one_way(flows, slot_kib * 1024, 4, false);
  }
  for (const std::uint32_t flows : {1U, 2U}) stream_one_way(flows, 128 * 1024, 4, true);
  stream_one_way(2, 128 * 1024, 8, false);
  for (const std::uint32_t flows : {1U, 2U}) ping_pong(flows);
}

}  // namespace tests

// Wires that take their time, or lose packets: what is read at one end of a wire comes out at the other after a
// constant delay, but for a share that is drawn by chance, the same in every run.
//
//      TUN device  --read-->  [ p5 p4 p3 p2 ]  --write when due-->  TUN device          and the same the other way
//
// Two TUN devices in two network namespaces and this between them stand in for a veth pair where the kernel cannot
// delay or lose (netem). Nothing else is dropped here: the rate limits on both devices bound what waits. One thread
// serves all wires.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace syntony {

/// Non-blocking descriptors of two TUN devices without packet information (IFF_NO_PI). They stay the caller's.
struct DelayedWire {
  int one = -1;
  int other = -1;
  std::chrono::nanoseconds delay{};
  double loss = 0;  // share of the packets that get lost, each way
};

/// What happened on all wires together. Lateness is by how much a packet came out later than it should have.
struct DelayFigures {
  std::uint64_t packets = 0;
  std::uint64_t dropped = 0;  // lost on purpose
  std::uint64_t lost = 0;     // the device did not take them
  std::chrono::nanoseconds mean_lateness{};
  std::chrono::nanoseconds worst_lateness{};
};

/// Serves the wires until `stop` becomes readable or its other end is closed. Throws Error(system).
DelayFigures run_delay_line(std::span<const DelayedWire> wires, int stop);

}  // namespace syntony

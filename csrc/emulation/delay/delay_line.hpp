// Wires that take their time: packets read at one end of a wire come out at the other after a constant delay.
//
//      TUN device  --read-->  [ p5 p4 p3 p2 ]  --write when due-->  TUN device          and the same the other way
//
// Two TUN devices in two network namespaces and this between them stand in for a veth pair where the kernel cannot
// delay (netem). Nothing is dropped here: the rate limits on both devices bound what waits. One thread serves all
// wires.
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
};

/// What happened on all wires together. Lateness is by how much a packet came out later than it should have.
struct DelayFigures {
  std::uint64_t packets = 0;
  std::uint64_t lost = 0;  // the device did not take them
  std::chrono::nanoseconds mean_lateness{};
  std::chrono::nanoseconds worst_lateness{};
};

/// Serves the wires until `stop` becomes readable or its other end is closed. Throws Error(system).
DelayFigures run_delay_line(std::span<const DelayedWire> wires, int stop);

}  // namespace syntony

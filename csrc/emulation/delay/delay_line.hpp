// Wires with delay and loss: what is read at one end of a wire comes out at the other after a constant delay, except
// for a random share that is lost, the same in every run.
//
//      TUN device  --read-->  [ p5 p4 p3 p2 ]  --write when due-->  TUN device          and the same the other way
//
// Two TUN devices in two network namespaces with this between them replace a veth pair if the kernel cannot delay or
// drop packets (netem). Nothing else is dropped here: the rate limits on both devices bound the queue. One thread
// serves all wires.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace syntony {

/// Non-blocking descriptors of two TUN devices without packet information (IFF_NO_PI). The caller keeps ownership.
struct DelayedWire {
  int one = -1;
  int other = -1;
  std::chrono::nanoseconds delay{};
  double loss = 0;  // share of packets lost, each way
};

/// Totals over all wires. Lateness is how much later a packet came out than it should have.
struct DelayFigures {
  std::uint64_t packets = 0;
  std::uint64_t dropped = 0;  // lost on purpose
  std::uint64_t lost = 0;     // not accepted by the device
  std::chrono::nanoseconds mean_lateness{};
  std::chrono::nanoseconds worst_lateness{};
};

/// Serves the wires until `stop` becomes readable or its other end is closed. Throws Error(system).
DelayFigures run_delay_line(std::span<const DelayedWire> wires, int stop);

}  // namespace syntony

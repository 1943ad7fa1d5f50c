r"""Hosts that share memory over CXL: what one writes into the pool, another reads.

      rank 0   rank 1   rank 2   rank 3
          \      \        /      /           each host's CXL port, writing and reading at once
           ports of the pool
               │      ▲
             memory controllers              whatever passes is written and read there: one way in, one way out

A message is a write and a read, so it takes the memory's bandwidth twice; the two halves are one link here, of half of
what the controllers do. The pool copies: one write is read by as many hosts as want it.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Topology


def cxl_pool(
    hosts: int = 8,
    bandwidth: Fraction = Fraction(32 * 10**9),
    memory_bandwidth: Fraction = Fraction(4608 * 10**8),
    alpha: float = 90e-9,
) -> Topology:
    """`hosts` around a multi-headed memory device. Symmetry: permute hosts."""
    require(hosts >= 1, f"cxl-pool: hosts is {hosts}; it must be at least 1")
    wiring = Wiring(f"cxl-pool:{hosts}")
    ranks = [wiring.rank((x, 0.0)) for x in spread(0.0, float(hosts), hosts)]
    written = wiring.switch("written", (hosts / 2 - 0.7, -1.5))
    read = wiring.switch("read", (hosts / 2 + 0.7, -1.5), multicast=True)
    for rank in ranks:
        wiring.link(rank, written, bandwidth, alpha)
        wiring.link(read, rank, bandwidth, alpha)
    wiring.link(written, read, memory_bandwidth / 2, 0.0)
    return wiring.topology(swap_and_turn(hosts + 2, [[rank] for rank in ranks]))


CXL_POOL = Family(
    name="cxl-pool",
    build=cxl_pool,
    parameters=(
        Parameter("hosts", count, "hosts with a port of the pool"),
        Parameter("bandwidth", rate, "bytes/s of a host's port, per direction"),
        Parameter("memory_bandwidth", rate, "bytes/s of the pool's memory, writes and reads together"),
        Parameter("alpha", seconds, "seconds between a host and the pool"),
    ),
    summary="hosts that share memory over CXL, by writing and reading a pool",
    source="Li et al., Pond (ASPLOS'23), section 4: multi-headed devices for 8 to 16 sockets, x8 CXL (32 GB/s) per "
    "socket, 12 channels of DDR5 (4800 MT/s, 460.8 GB/s), 70 to 90 ns more than memory of the other socket",
    example="cxl-pool:8",
)

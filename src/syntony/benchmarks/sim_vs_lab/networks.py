"""Ten networks of four to eight hosts that are not regular; the lab holds them on two cores.

Wires have unequal rates, hosts forward or share a NIC, leaves have thin uplinks. A lab's route between two addresses is
one shortest path, so none has cables that only a second path would use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from syntony.benchmarks.synthesis.networks.irregular import dragonfly_of_nine, hosts_with_few_nics
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

_MBIT = Fraction(10**6, 8)
_US = 1e-6


def _grid(rows: int, columns: int) -> Topology:
    """A mesh whose wires have three rates."""
    wiring = Wiring(f"grid {rows}x{columns}, unequal wires")
    for node in range(rows * columns):
        wiring.rank((node % columns, -(node // columns)))
    for node in range(rows * columns):
        rate = 50 * _MBIT / (1 + node % 3)
        if (node + 1) % columns:
            wiring.cable(node, node + 1, rate, _US)
        if node + columns < rows * columns:
            wiring.cable(node, node + columns, 50 * _MBIT, _US)
    return wiring.topology()


def _tree_and_more(ranks: int, seed: int) -> Topology:
    """A random tree of hosts with some more cables, no two between the same hosts."""
    rng = random.Random(seed)
    wiring = Wiring(f"random, {ranks} hosts")
    for rank in range(ranks):
        wiring.rank((rank, rank % 3))
    pairs = [(rng.randrange(rank), rank) for rank in range(1, ranks)]
    others = [(low, high) for high in range(ranks) for low in range(high) if (low, high) not in pairs]
    for one, other in pairs + rng.sample(others, ranks // 2):
        wiring.cable(one, other, rng.choice([10, 25, 50]) * _MBIT, _US)
    return wiring.topology()


def _leaves(*hosts: int) -> Topology:
    """Leaves of unequally many hosts under one spine, with equal uplinks."""
    wiring = Wiring(f"leaves of {' and '.join(map(str, hosts))}")
    for rank in range(sum(hosts)):
        wiring.rank((rank, 0))
    spine = wiring.switch("spine", (sum(hosts) / 2, 2))
    first = 0
    for number, many in enumerate(hosts):
        leaf = wiring.switch(f"leaf{number}", (first + many / 2, 1))
        for rank in range(first, first + many):
            wiring.cable(rank, leaf, 50 * _MBIT, _US)
        wiring.cable(leaf, spine, 50 * _MBIT, _US)
        first += many
    return wiring.topology()


def _named(name: str) -> Callable[[], Topology]:
    return lambda: parse(name)


NETWORKS: Mapping[str, Callable[[], Topology]] = MappingProxyType(
    {
        "ring, one slow wire": _named("ring:5,slowed=0-1@40%"),
        "hypercube, one wire lost": _named("hypercube:3,without=0-1"),
        "full mesh, two slow wires": _named("full:4,slowed=0-1@25%,slowed=2-3@50%"),
        "star, one slow port": _named("star:6,slowed=rank0-switch@50%"),
        "grid, three rates": lambda: _grid(2, 4),
        "random, 6 hosts": lambda: _tree_and_more(6, 1),
        "random, 8 hosts": lambda: _tree_and_more(8, 2),
        "dragonfly": lambda: dragonfly_of_nine(4, 2),
        "leaves of 2, 3 and 1": lambda: _leaves(2, 3, 1),
        "pairs that share a NIC": lambda: hosts_with_few_nics(4, 2, 1),
    }
)

"""Networks as people have them: unequal wires, hosts with fewer NICs than GPUs, oversubscribed and dual-homed fabrics.

None is in the table of families, and none declares a symmetry. `random_network` draws others of the same kinds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology

GB = Fraction(10**9)
US = 1e-6
FACTORS = (Fraction(1), Fraction(1), Fraction(2), Fraction(1, 2))


def unequal_torus(rows: int = 5, columns: int = 7) -> Topology:
    """A torus whose wires have different rates."""
    wiring = Wiring(f"torus {rows}x{columns}, unequal wires")
    for node in range(rows * columns):
        wiring.rank((node % columns, -(node // columns)))
    for row in range(rows):
        for column in range(columns):
            here = row * columns + column
            right, below = row * columns + (column + 1) % columns, (row + 1) % rows * columns + column
            wiring.cable(here, right, GB * (1 + (row + column) % 3), US)
            wiring.cable(here, below, GB * (1 + (row * column) % 2), US)
    return wiring.topology()


def hosts_with_few_nics(hosts: int = 2, gpus: int = 6, nics: int = 3) -> Topology:
    """Hosts of GPUs behind a switch that does not copy, each NIC shared by some, one fabric."""
    wiring = Wiring(f"{hosts} hosts x {gpus} GPUs, {nics} NICs")
    for rank in range(hosts * gpus):
        wiring.rank((rank + rank // gpus, 0))
    fabric = wiring.switch("fabric", (hosts * gpus / 2, 3))
    for host in range(hosts):
        middle = host * (gpus + 1) + gpus / 2
        inside = wiring.switch(f"switch{host}", (middle, 1))
        ports = [wiring.nic(f"nic{host}.{port}", (middle - nics / 2 + port, 2)) for port in range(nics)]
        for gpu in range(gpus):
            wiring.cable(host * gpus + gpu, inside, 200 * GB, 0.5 * US)
            wiring.cable(host * gpus + gpu, ports[gpu * nics // gpus], 32 * GB, 0.5 * US)
        for port in ports:
            wiring.cable(port, fabric, 25 * GB, 2 * US)
    return wiring.topology()


def oversubscribed(leaves: int = 4, each: int = 6, ratio: int = 3) -> Topology:
    """Ranks under leaves, whose two uplinks together carry 1/ratio of what comes from below."""
    wiring = Wiring(f"fat tree {ratio}:1")
    for rank in range(leaves * each):
        wiring.rank((rank, 0))
    spines = [wiring.switch(f"spine{i}", (leaves * each * (1 + i) / 3, 2)) for i in range(2)]
    for leaf in range(leaves):
        switch = wiring.switch(f"leaf{leaf}", (leaf * each + each / 2, 1))
        for rank in range(leaf * each, (leaf + 1) * each):
            wiring.cable(rank, switch, 3 * GB, US)
        for spine in spines:
            wiring.cable(switch, spine, 3 * GB * each / (ratio * len(spines)), US)
    return wiring.topology()


def dual_homed(hosts: int = 12) -> Topology:
    """Hosts with a fast and a slow port, on two switches that a trunk joins."""
    wiring = Wiring("dual-homed hosts")
    for host in range(hosts):
        wiring.rank((host, 0))
    switches = [wiring.switch(f"switch{i}", (hosts * (1 + i) / 3, 1)) for i in range(2)]
    for host in range(hosts):
        wiring.cable(host, switches[host % 2], 2 * GB, US)
        wiring.cable(host, switches[1 - host % 2], GB, US)
    wiring.cable(switches[0], switches[1], 4 * GB, US)
    return wiring.topology()


def bridged_pairs(pairs: int = 4) -> Topology:
    """GPUs under a PCIe switch that does not copy, joined in pairs by NVLink bridges."""
    wiring = Wiring("NVLink-bridged pairs")
    for rank in range(2 * pairs):
        wiring.rank((rank, 0))
    root = wiring.switch("pcie", (pairs, 1))
    for rank in range(2 * pairs):
        wiring.cable(rank, root, 25 * GB, US)
    for pair in range(pairs):
        wiring.cable(2 * pair, 2 * pair + 1, 100 * GB, 0.5 * US)
    return wiring.topology()


def random_regular(ranks: int = 10, degree: int = 4, seed: int = 1) -> Topology:
    """Random cycles through all ranks, half as many as the degree."""
    rng = random.Random(seed)
    wiring = Wiring(f"random regular, {ranks} ranks")
    for rank in range(ranks):
        wiring.rank((rank % 5, rank // 5))
    for _ in range(degree // 2):
        order = rng.sample(range(ranks), ranks)
        for here, there in zip(order, order[1:] + order[:1], strict=True):
            wiring.cable(here, there, GB, US)
    return wiring.topology()


def dragonfly_of_nine(groups: int = 3, routers: int = 3) -> Topology:
    """Groups of routers with a rank each, all joined within a group; the wires between groups are slower."""
    wiring = Wiring(f"dragonfly of {groups * routers}")
    for rank in range(groups * routers):
        wiring.rank((rank % routers + 4 * (rank // routers), 0))
    for group in range(groups):
        for one in range(routers):
            for other in range(one + 1, routers):
                wiring.cable(group * routers + one, group * routers + other, 2 * GB, US)
    for one in range(groups):
        for other in range(one + 1, groups):
            wiring.cable(one * routers + (other - 1) % routers, other * routers + one % routers, GB, 2 * US)
    return wiring.topology()


NETWORKS: Mapping[str, Callable[[], Topology]] = MappingProxyType(
    {
        "torus": unequal_torus,
        "hosts": hosts_with_few_nics,
        "fat tree": oversubscribed,
        "dual-homed": dual_homed,
        "pairs": bridged_pairs,
        "regular": random_regular,
        "dragonfly": dragonfly_of_nine,
    }
)


def random_network(seed: int, most: int = 10) -> Topology:
    """One of these kinds with other numbers, or a random tree with some more cables; rates and latencies are drawn."""
    rng = random.Random(seed)
    kinds: tuple[Callable[[], Topology], ...] = (
        lambda: unequal_torus(2, rng.randint(2, most // 2)),
        lambda: hosts_with_few_nics(2, rng.choice([2, 3, most // 2]), rng.choice([1, 2])),
        lambda: oversubscribed(2, rng.randint(2, most // 2), rng.choice([2, 3])),
        lambda: dual_homed(rng.randint(2, most)),
        lambda: bridged_pairs(rng.randint(1, most // 2)),
        lambda: random_regular(rng.randint(4, most), 4, seed),
        lambda: _sparse(rng, rng.randint(2, most)),
    )
    drawn = kinds[seed % len(kinds)]()
    wiring = Wiring(f"{drawn.name} (seed {seed})")
    for node in drawn.nodes:
        place = node.place or (0.0, 0.0)
        match node.kind:
            case "rank":
                wiring.rank(place)
            case "nic":
                wiring.nic(node.name, place)
            case _:
                wiring.switch(node.name, place)
    for link in drawn.links[::2]:  # a cable is two links, one behind the other
        wiring.cable(link.src, link.dst, link.bandwidth * rng.choice(FACTORS), link.alpha)
    return wiring.topology()


def _sparse(rng: random.Random, ranks: int) -> Topology:
    wiring = Wiring(f"random, {ranks} ranks")
    for rank in range(ranks):
        wiring.rank((rank, rank % 3))
    for rank in range(1, ranks):
        wiring.cable(rank, rng.randrange(rank), GB * rng.choice([5, 10, 25]), rng.choice([0.5, 1, 2]) * US)
    for _ in range(ranks // 2):
        one, other = rng.sample(range(ranks), 2)
        wiring.cable(one, other, GB * rng.choice([5, 10, 25]), US)
    return wiring.topology()

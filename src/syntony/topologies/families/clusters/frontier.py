r"""Frontier: nodes of eight GPU dies on xGMI, four NICs each, in Slingshot's dragonfly.

         0 ≡≡ 1 ── 3 ≡≡ 2        ≡ four xGMI links, within a module      not drawn:  0 ═ 6   2 ═ 4
         │    │    │    │        ═ two,  ─ one
         2    5    7    0        each die to the number below it         5 ── 7, 4 ── 6

      group 0                  group 1
      s0 ─── s1               s0 ─── s1            a switch has the NICs of its nodes; every two of a group share
      │  \ /  │   a bundle     │  \ /  │           a cable, every two groups a bundle of four, dealt to the switches
      s2 ─── s3  ───────────  s2 ─── s3

That two dies share 50, 100 or, within a module, 200e9 bytes/s is in OLCF's Frontier user guide; which two share how
much is in a figure of it only, and is assumed here. A NIC sits beside the odd die of its module. Where no figure says
which switch has which cable, `global_cables.py` does.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

from syntony.base.quantity import count
from syntony.topologies.families.boxes.mi250 import XGMI_ALPHA
from syntony.topologies.families.boxes.rates import PCIE_ALPHA, BoxRates, box_parameters
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.dragonfly import SLINGSHOT_ALPHA, SLINGSHOT_BANDWIDTH
from syntony.topologies.families.switched.global_cables import Circle, global_cables
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Permutation, Topology

_DIES = 8
_XGMI = {
    4: ((0, 1), (2, 3), (4, 5), (6, 7)),
    2: ((0, 6), (2, 4)),
    1: ((0, 2), (1, 3), (1, 5), (3, 7), (4, 6), (5, 7)),
}

_RATES = BoxRates(
    Fraction(50 * 10**9), XGMI_ALPHA, Fraction(50 * 10**9), PCIE_ALPHA, SLINGSHOT_BANDWIDTH, SLINGSHOT_ALPHA
)


def frontier(
    groups: int = 74,
    switches: int = 32,
    nodes: int = 4,
    bundle: int = 4,
    rates: BoxRates = _RATES,
) -> Topology:
    """`groups` of `switches` with `nodes` each; `bundle` cables between two groups; `bandwidth` is one xGMI link's.

    Symmetry: turn the circle of groups; permute the nodes of a switch; turn a node's modules half round.
    """
    for what, number in (("groups", groups), ("switches", switches), ("nodes", nodes), ("bundle", bundle)):
        require(number >= 1, f"frontier: {what} is {number}; it must be at least 1")
    wiring = Wiring("frontier")
    circle = Circle(groups, switches * nodes * 5.0)
    every = [(g, s, n) for g in range(groups) for s in range(switches) for n in range(nodes)]

    def along(s: int, n: int, x: float) -> float:
        return ((s + 0.5) / switches - 0.5) * switches * nodes * 4.5 + (n - (nodes - 1) / 2) * 4.5 + x

    dies = {
        (g, s, n): [wiring.rank(circle.place(g, along(s, n, d % 4 - 1.5), 3.0 + d // 4)) for d in range(_DIES)]
        for g, s, n in every
    }
    nics = {
        (g, s, n): [
            wiring.nic(f"nic{g}.{s}.{n}.{k}", circle.place(g, along(s, n, k - 1.5), 1.5)) for k in range(_DIES // 2)
        ]
        for g, s, n in every
    }
    fabric = [
        [wiring.switch(f"s{g}.{s}", circle.place(g, along(s, 0, (nodes - 1) * 2.25), 0.0)) for s in range(switches)]
        for g in range(groups)
    ]
    for g, s, n in every:
        for links, pairs in _XGMI.items():
            for one, other in pairs:
                wiring.cable(dies[g, s, n][one], dies[g, s, n][other], links * rates.bandwidth, rates.alpha)
        for k, nic in enumerate(nics[g, s, n]):
            wiring.cable(dies[g, s, n][2 * k + 1], nic, rates.pcie_bandwidth, rates.pcie_alpha)
            wiring.cable(nic, fabric[g][s], rates.nic_bandwidth, rates.nic_alpha)
    for row in fabric:
        for one, other in combinations(row, 2):
            wiring.cable(one, other, rates.nic_bandwidth, rates.nic_alpha)
    ports = bundle * (groups - 1)
    between: dict[tuple[int, int], int] = {}
    for (here, port), (there, end) in global_cables(groups, ports):
        ends = fabric[here][port * switches // ports], fabric[there][end * switches // ports]
        between[ends] = between.get(ends, 0) + 1
    for (one, other), cables in between.items():
        wiring.cable(one, other, cables * rates.nic_bandwidth, rates.nic_alpha)
    size = wiring.size
    blocks = [
        [x for s in range(switches) for n in range(nodes) for x in (*dies[g, s, n], *nics[g, s, n])] + fabric[g]
        for g in range(groups)
    ]
    return wiring.topology(
        [
            *_turned(size, blocks),
            *swap_and_turn(size, [[*dies[0, 0, n], *nics[0, 0, n]] for n in range(nodes)]),
            _half_round(size, dies[0, 0, 0], nics[0, 0, 0]),
        ]
    )


def _turned(size: int, blocks: list[list[int]]) -> list[Permutation]:
    image = list(range(size))
    for block, following in zip(blocks, [*blocks[1:], blocks[0]], strict=True):
        for one, other in zip(block, following, strict=True):
            image[one] = other
    return [tuple(image)]


def _half_round(size: int, dies: list[int], nics: list[int]) -> Permutation:
    """Exchanges modules 0 and 1 with 3 and 2, dies in order: what the wiring of a node allows."""
    image = list(range(size))
    for module, other in ((0, 3), (1, 2), (2, 1), (3, 0)):
        image[dies[2 * module]], image[dies[2 * module + 1]] = dies[2 * other], dies[2 * other + 1]
        image[nics[module]] = nics[other]
    return tuple(image)


FRONTIER = Family(
    name="frontier",
    build=frontier,
    parameters=(
        Parameter("groups", count, "groups"),
        Parameter("switches", count, "switches in a group"),
        Parameter("nodes", count, "nodes on a switch, each with eight dies and four NICs"),
        Parameter("bundle", count, "cables between two groups"),
        *box_parameters(
            "bytes/s of one xGMI link, per direction; two dies share 1, 2 or 4 of them",
            "seconds per xGMI hop",
            "a die and its NIC",
            nic_bandwidth="bytes/s of a NIC's port and of a cable of the fabric, per direction",
            nic_alpha="seconds per cable of the fabric",
        ),
    ),
    summary="Frontier: nodes of eight MI250X dies and four NICs in Slingshot's dragonfly",
    source="Atchley et al., Frontier: Exploring Exascale (SC'23): 74 groups of 128 nodes, four NICs of 25e9 bytes/s, "
    "57 % of a group's injection between groups; node: OLCF's user guide, 200 GB/s in a module, 50 or 100 between; "
    "which switch has which cable "
    "is not published; latencies: none published, xGMI as NVLink in TACCL (NSDI'23) table 1, fabric as `dragonfly`",
    example="frontier:groups=2,switches=2,nodes=1",
)

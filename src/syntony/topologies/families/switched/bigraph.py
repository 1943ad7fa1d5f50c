r"""BiGraph: two layers of switches, every upper one joined to every lower one, and ranks on both.

        0  1    2  3
         \ │     │ /
       upper 0  upper 1         Each switch is a leaf for its own ranks and a spine for the other layer. Between ranks
           │ \  / │             of different layers there is exactly one shortest path. At most three switches lie
           │  \/  │             between two ranks.
           │  /\  │
       lower 0  lower 1
         / │     │ \
        4  5    6  7
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, ratio, seconds
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import trunk
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Topology


def bigraph(
    switches: int = 2,
    hosts: int = 2,
    oversubscription: Fraction = Fraction(1),
    bandwidth: Fraction = Fraction(125 * 10**8),
    alpha: float = NETWORK_ALPHA,
) -> Topology:
    """`switches` in each layer with `hosts` ranks each, those of the upper layer first.

    Symmetry: permute the ranks of a switch, the switches of a layer, and the two layers.
    """
    for what, number in (("switches", switches), ("hosts", hosts)):
        require(number >= 1, f"bigraph: {what} is {number}; it must be at least 1")
    wiring = Wiring("bigraph")
    pitch = max(hosts + 0.6, 1.4)
    height = max(1.5, 0.14 * pitch * switches)
    middles = spread(0.0, 0.0, switches, pitch)
    ranks = [
        [
            [wiring.rank((x, side * (height / 2 + 1.3))) for x in spread(middle, middle, hosts, 1.0)]
            for middle in middles
        ]
        for side in (1, -1)
    ]
    layers = [
        [wiring.switch(f"{name}{i}", (middle, side * height / 2)) for i, middle in enumerate(middles)]
        for name, side in (("upper", 1), ("lower", -1))
    ]
    for layer, below in zip(layers, ranks, strict=True):
        for switch, own in zip(layer, below, strict=True):
            for rank in own:
                wiring.cable(rank, switch, bandwidth, alpha)
    across = trunk(hosts * bandwidth, switches, oversubscription)
    for upper in layers[0]:
        for lower in layers[1]:
            wiring.cable(upper, lower, across, alpha)
    size = wiring.size
    branches = [
        [[switch, *own] for switch, own in zip(layer, below, strict=True)]
        for layer, below in zip(layers, ranks, strict=True)
    ]
    return wiring.topology(
        [
            *swap_and_turn(size, [[rank] for rank in ranks[0][0]]),
            *swap_and_turn(size, branches[0]),
            *swap_and_turn(size, [[node for branch in side for node in branch] for side in branches]),
        ]
    )


BIGRAPH = Family(
    name="bigraph",
    build=bigraph,
    parameters=(
        Parameter("switches", count, "switches in each of the two layers"),
        Parameter("hosts", count, "ranks on a switch"),
        Parameter("oversubscription", ratio, "a switch's bandwidth to its ranks over that to the other layer"),
        Parameter("bandwidth", rate, "bytes/s of a rank's cable per direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="Alibaba EFLOPS: two layers of switches, fully joined, with ranks on both",
    source="Dong et al., EFLOPS, HPCA'20, and ACCL (IEEE Micro 2021); each accelerator with its own NIC is a rank; "
    "rates: 100 Gb/s Ethernet",
    example="bigraph:switches=3,hosts=2",
)

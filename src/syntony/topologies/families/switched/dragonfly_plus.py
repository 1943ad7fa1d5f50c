r"""Dragonfly+: groups that are leaf-spine networks; ranks on the leaves, global cables on the spines.

             to the other groups
             │ │          │ │
           spine 0      spine 1          In a group every leaf has a cable to every spine. Every two groups share a
             │   \      /   │            global cable, or several; a message between groups passes one:
             │     \  /     │            leaf, spine, spine, leaf.
             │     /  \     │
           leaf 0       leaf 1
            │ │          │ │
            0 1          2 3

Of switches with k ports, half of a leaf's go to ranks and half of a spine's to other groups: k^2/4 ranks a group, and
at most k^2/4 + 1 groups. The global cables lie as `global_cables.py` says.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.global_cables import Circle, global_cables, is_mirrored
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Topology

EDR_BANDWIDTH = Fraction(125 * 10**8)


def dragonfly_plus(
    leaves: int = 2,
    spines: int = 2,
    hosts: int = 2,
    uplinks: int = 2,
    groups: int = 0,
    bandwidth: Fraction = EDR_BANDWIDTH,
    local_bandwidth: Fraction = EDR_BANDWIDTH,
    global_bandwidth: Fraction = EDR_BANDWIDTH,
    alpha: float = NETWORK_ALPHA,
) -> Topology:
    """`groups` (0: the most, spines * uplinks + 1) of `leaves` with `hosts` ranks and `spines` with `uplinks`.

    Symmetry: turn the circle of groups; mirror it, where all global ports are used; permute the leaves of a group and
    the ranks of a leaf.
    """
    for what, number in (("leaves", leaves), ("spines", spines), ("hosts", hosts), ("uplinks", uplinks)):
        require(number >= 1, f"dragonfly-plus: {what} is {number}; it must be at least 1")
    most = spines * uplinks + 1
    require(groups <= most, f"dragonfly-plus: groups is {groups}; {spines} spines with {uplinks} uplinks reach {most}")
    groups = groups or most
    wiring = Wiring("dragonfly-plus")
    pitch = max(0.8 * hosts + 0.3, 1.1)
    circle = Circle(groups, max(pitch * leaves, 1.1 * spines) + 0.8)
    columns = spread(0.0, 0.0, leaves, pitch)
    ranks = [
        [[wiring.rank(circle.place(i, x, 3.0)) for x in spread(column, column, hosts, 0.8)] for column in columns]
        for i in range(groups)
    ]
    leaf_ids = [
        [wiring.switch(f"leaf{i}.{j}", circle.place(i, column, 1.7)) for j, column in enumerate(columns)]
        for i in range(groups)
    ]
    spine_ids = [
        [
            wiring.switch(f"spine{i}.{s}", circle.place(i, x, 0.0))
            for s, x in enumerate(spread(columns[0], columns[-1], spines, 1.1))
        ]
        for i in range(groups)
    ]
    for i in range(groups):
        for j, leaf in enumerate(leaf_ids[i]):
            for rank in ranks[i][j]:
                wiring.cable(rank, leaf, bandwidth, alpha)
            for spine in spine_ids[i]:
                wiring.cable(leaf, spine, local_bandwidth, alpha)
    for (here, port), (there, end) in global_cables(groups, spines * uplinks):
        wiring.cable(spine_ids[here][port // uplinks], spine_ids[there][end // uplinks], global_bandwidth, alpha)

    size = wiring.size
    branches = [[[leaf, *below] for leaf, below in zip(leaf_ids[i], ranks[i], strict=True)] for i in range(groups)]
    below = [[node for branch in branches[i] for node in branch] for i in range(groups)]
    turn, mirror = [0] * size, [0] * size
    for i in range(groups):
        for image, group, row in (
            (turn, (i + 1) % groups, spine_ids[(i + 1) % groups]),
            (mirror, -i % groups, spine_ids[-i % groups][::-1]),
        ):
            for node, to in zip([*below[i], *spine_ids[i]], [*below[group], *row], strict=True):
                image[node] = to
    return wiring.topology(
        [
            tuple(turn),
            *([tuple(mirror)] if is_mirrored(groups, spines * uplinks) else []),
            *swap_and_turn(size, branches[0]),
            *swap_and_turn(size, [[rank] for rank in ranks[0][0]]),
        ]
    )


DRAGONFLY_PLUS = Family(
    name="dragonfly-plus",
    build=dragonfly_plus,
    parameters=(
        Parameter("leaves", count, "leaf switches in a group"),
        Parameter("spines", count, "spine switches in a group"),
        Parameter("hosts", count, "ranks on a leaf"),
        Parameter("uplinks", count, "global cables of a spine"),
        Parameter("groups", count, "groups, at most spines * uplinks + 1; 0: that many"),
        Parameter("bandwidth", rate, "bytes/s between a rank and its leaf, per direction"),
        Parameter("local_bandwidth", rate, "bytes/s of a cable within a group, per direction"),
        Parameter("global_bandwidth", rate, "bytes/s of a cable between groups, per direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="groups that are leaf-spine networks, every two joined by a global cable",
    source="Shpiner et al., HiPINEB'17; rates: InfiniBand EDR, 100 Gb/s",
    example="dragonfly-plus:leaves=2,spines=2,hosts=2,uplinks=2",
)

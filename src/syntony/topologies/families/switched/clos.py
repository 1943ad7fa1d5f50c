r"""Clos networks of plain ranks: leaf-spine in two layers, pods under cores in three, and the k-ary fat tree.

                 spine 0       spine 1
                 │     \      /     │          clos:leaves=2,hosts=3,spines=2,oversubscription=3
                 │       \  /       │
                 │       /  \       │          3 ranks have 3 times the bandwidth of the cables above:
                leaf 0 /      \ leaf 1         each of its two cables is half as fast as a rank's
               /  │  \         /  │  \
              0   1   2       3   4   5

The layers above the leaves are those of `tiers.py`, with a plane of cores for each spine of a pod.
The k-ary fat tree (Al-Fares et al., SIGCOMM'08, section 3) is the case in which all switches have k ports and all
cables are equal: k pods of k/2 leaves ("edge"), k/2 spines ("aggregation") and k/2 hosts a leaf, under (k/2)^2 cores.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag, rate, ratio, seconds
from syntony.topologies.families.boxes.rates import Wire
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import Pod, Switches, cores_for, trunk, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Wiring, require, spread
from syntony.topologies.topology import Topology


def clos(
    leaves: int,
    hosts: int,
    spines: int = 1,
    oversubscription: Fraction = Fraction(1),
    pods: int = 1,
    cores: int = 0,
    core_oversubscription: Fraction = Fraction(1),
    bandwidth: Fraction = ABSTRACT_BANDWIDTH,
    alpha: float = ABSTRACT_ALPHA,
    multicast: bool = False,
    reduces: bool = False,
    *,
    family: str = "clos",
) -> Topology:
    """`pods` times `leaves` leaves with `hosts` ranks each. Ranks are numbered leaf by leaf.

    Symmetry: permute the ranks of a leaf, the leaves of a pod, pods, the cores of a plane, and planes.
    """
    for what, number in (("leaves", leaves), ("hosts", hosts), ("spines", spines), ("pods", pods)):
        require(number >= 1, f"{family}: {what} is {number}; it must be at least 1")
    require(
        pods > 1 or core_oversubscription == 1,
        f"{family}: core_oversubscription is {core_oversubscription}, but a single pod has no cores",
    )
    cores = cores_for(family, pods, cores, usual=spines, planes=spines)
    wiring = Wiring(family)
    leaf_width = max(hosts + 0.6, 1.4)
    pod_width = max(leaves * leaf_width, 1.2 * spines) + (0.8 if pods > 1 else 0.0)
    middles = [x for p in range(pods) for x in spread(p * pod_width, (p + 1) * pod_width - 0.8, leaves, leaf_width)]
    ranks = [[wiring.rank((x, 0.0)) for x in spread(middle, middle, hosts, 1.0)] for middle in middles]
    height = 1.5
    leaf_ids = [
        wiring.switch(
            f"leaf{i // leaves}.{i % leaves}" if pods > 1 else f"leaf{i}",
            (middle, height),
            multicast=multicast,
            reduces=reduces,
        )
        for i, middle in enumerate(middles)
    ]
    for leaf, below in zip(leaf_ids, ranks, strict=True):
        for rank in below:
            wiring.cable(rank, leaf, bandwidth, alpha)
    up = trunk(hosts * bandwidth, spines, oversubscription)
    top = trunk(leaves * up, cores // spines, core_oversubscription) if cores else None
    tiers = wire_tiers(
        wiring,
        [
            Pod(leaf_ids[p * leaves : (p + 1) * leaves], p * pod_width, (p + 1) * pod_width - 0.8, height)
            for p in range(pods)
        ],
        spines,
        Wire(up, alpha),
        cores,
        spines,
        Wire(top, alpha) if top else None,
        Switches(multicast=multicast, reduces=reduces),
    )
    size = wiring.size
    blocks = [[leaf, *below] for leaf, below in zip(leaf_ids, ranks, strict=True)]
    whole_pods = [
        [node for block in blocks[p * leaves : (p + 1) * leaves] for node in block] + [*tiers.spines[p]]
        for p in range(pods)
    ]
    return wiring.topology(
        [
            *swap_and_turn(size, [[rank] for rank in ranks[0]]),
            *swap_and_turn(size, blocks[:leaves]),
            *swap_and_turn(size, whole_pods),
            *tiers.symmetries(size),
        ]
    )


def fat_tree(
    k: int,
    bandwidth: Fraction = ABSTRACT_BANDWIDTH,
    alpha: float = ABSTRACT_ALPHA,
    multicast: bool = False,
    reduces: bool = False,
) -> Topology:
    """The fat tree of switches with `k` ports, k even: k^3/4 ranks, full bisection. Symmetry as `clos`."""
    require(k >= 2 and k % 2 == 0, f"fat-tree: k is {k}; a switch has an even number of ports, at least 2")
    half = k // 2
    return clos(
        leaves=half,
        hosts=half,
        spines=half,
        pods=k,
        cores=half * half,
        bandwidth=bandwidth,
        alpha=alpha,
        multicast=multicast,
        reduces=reduces,
        family="fat-tree",
    )


_CABLES = (
    Parameter("bandwidth", rate, "bytes/s of a rank's cable per direction"),
    Parameter("alpha", seconds, "seconds per link; two links lead to a rank on the same leaf, four to one in the pod"),
    Parameter("multicast", flag, "whether the switches can copy one message to many"),
    Parameter("reduces", flag, "whether the switches can add messages"),
)

CLOS = Family(
    name="clos",
    build=clos,
    parameters=(
        Parameter("leaves", count, "leaf switches in a pod"),
        Parameter("hosts", count, "ranks on a leaf"),
        Parameter("spines", count, "spine switches in a pod"),
        Parameter("oversubscription", ratio, "a leaf's bandwidth to its ranks over that to the spines"),
        Parameter("pods", count, "pods; more than one are joined by cores"),
        Parameter("cores", count, "core switches, a multiple of the spines; 0: as many, if there are several pods"),
        Parameter("core_oversubscription", ratio, "a spine's bandwidth to the leaves over that to the cores"),
        *_CABLES,
    ),
    summary="leaf-spine or three-layer Clos of plain ranks, oversubscribed as asked",
    source="Clos (1953), folded; rates abstract",
    example="clos:leaves=4,hosts=4,spines=2,oversubscription=4",
)

FAT_TREE = Family(
    name="fat-tree",
    build=fat_tree,
    parameters=(Parameter("k", count, "ports of a switch, even"), *_CABLES),
    summary="the k-ary fat tree: k^3/4 ranks at full bisection on equal switches",
    source="Al-Fares, Loukissas, Vahdat, SIGCOMM'08, section 3; rates abstract",
    example="fat-tree:4",
)

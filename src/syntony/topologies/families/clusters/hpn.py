"""Alibaba HPN 7.0: rail-optimized segments with two leaves per rail, and two planes that never meet above them.

      cores   (several pods only)  plane a           plane b       15:1 oversubscribed
      spines                       60 per pod        60 per pod    every leaf of the plane in the pod
      leaves (ToR)                 rail 0 .. 7       rail 0 .. 7   of 15 segments
      NICs                         port 0            port 1        2 x 200 Gb/s each
      boxes                        8 GPUs, 8 NICs; 128 boxes a segment

Within a segment, two GPUs of a rail are one leaf apart; a pod of 15 segments has 15,360 GPUs on two layers. Pictures:
leaves and boxes in `rail_groups.py`, the layers above in `tiers.py`. The 8 spare boxes of a segment are left out. The
paper does not say how many cores a plane has; the default is 8, one per uplink of a spine.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, ratio
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, PCIE5_BANDWIDTH, BoxRates, Wire, nvidia_rates
from syntony.topologies.families.clusters.rail_groups import RailGroup, wire_rail_groups, within_a_group
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import Pod, Switches, Tiers, cores_for, trunk, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology

_PLANES = 2

_RATES = nvidia_rates(Fraction(200 * 10**9), PCIE5_BANDWIDTH, Fraction(25 * 10**9))


def hpn(
    pods: int = 1,
    segments: int = 15,
    boxes: int = 128,
    gpus: int = 8,
    spines: int = 60,
    cores: int = 0,
    leaf_oversubscription: Fraction = Fraction(16, 15),
    core_oversubscription: Fraction = Fraction(15),
    rates: BoxRates = _RATES,
) -> Topology:
    """`pods` of `segments` of `boxes` boxes; spines per pod and plane, cores per plane.

    Symmetry: permute boxes and rails of a segment, segments of a pod, pods, spines, cores, and the two planes.
    """
    for what, number in (("pods", pods), ("segments", segments), ("gpus", gpus), ("spines", spines)):
        require(number >= 1, f"hpn: {what} is {number}; it must be at least 1")
    require(pods * segments * boxes >= 2, f"hpn: boxes is {boxes}; the network joins at least 2 boxes")
    cores = cores_for("hpn", pods, cores, usual=8, planes=1)
    wiring = Wiring("hpn")
    inside = Boxes(
        family="hpn",
        boxes=pods * segments * boxes,
        gpus=gpus,
        nics=gpus,
        rates=rates,
    )
    groups = wire_rail_groups(wiring, inside, pods * segments, planes=_PLANES, leaf="tor")
    by_pod = [groups[p * segments : (p + 1) * segments] for p in range(pods)]
    up = trunk(boxes * rates.nic_bandwidth, spines, leaf_oversubscription)
    top = Wire(trunk(segments * gpus * up, cores, core_oversubscription), rates.nic_alpha) if cores else None
    planes = []
    for plane in range(_PLANES):
        letter = "ab"[plane]
        planes.append(
            wire_tiers(
                wiring,
                [_half(pod, plane) for pod in by_pod],
                spines,
                Wire(up, rates.nic_alpha),
                cores,
                1,
                top,
                Switches(spine=f"agg-{letter}", core=f"core-{letter}"),
            )
        )
    size = wiring.size
    whole_pods = [
        [node for group in pod for node in group.nodes] + [spine for tiers in planes for spine in tiers.spines[p]]
        for p, pod in enumerate(by_pod)
    ]
    return wiring.topology(
        [
            *within_a_group(size, groups[0]),
            *swap_and_turn(size, [group.nodes for group in by_pod[0]]),
            *swap_and_turn(size, whole_pods),
            *planes[0].symmetries(size),
            *swap_and_turn(size, [_everything(groups, plane, tiers) for plane, tiers in enumerate(planes)]),
        ]
    )


def _half(pod: tuple[RailGroup, ...], plane: int) -> Pod:
    """The leaves of one plane; plane b is drawn to the right of plane a, and a little higher."""
    left, right = pod[0].left, pod[-1].right
    middle = (left + right) / 2
    ends = (left, middle - 0.3) if plane == 0 else (middle + 0.3, right)
    return Pod([leaf for group in pod for leaf in group.leaves[plane]], *ends, pod[0].height + 0.8 * plane)


def _everything(groups: tuple[RailGroup, ...], plane: int, tiers: Tiers) -> list[int]:
    """All switches of one plane; corresponding switches of two planes are at equal positions."""
    return [
        *(leaf for group in groups for leaf in group.leaves[plane]),
        *(spine for row in tiers.spines for spine in row),
        *(core for row in tiers.cores for core in row),
    ]


HPN = Family(
    name="hpn",
    build=hpn,
    parameters=(
        Parameter("pods", count, "pods; more than one are joined by cores"),
        Parameter("segments", count, "segments in a pod"),
        Parameter("boxes", count, "boxes in a segment"),
        Parameter("gpus", count, "GPUs in a box, each with its two-port NIC and its rail"),
        Parameter("spines", count, "aggregation switches of a pod and plane"),
        Parameter("cores", count, "core switches of a plane; 0: eight, if there are several pods"),
        Parameter("leaf_oversubscription", ratio, "a leaf's bandwidth to the NICs over that to the spines"),
        Parameter("core_oversubscription", ratio, "a spine's bandwidth to the leaves over that to the cores"),
        *BOX_PARAMETERS,
    ),
    summary="Alibaba HPN 7.0: rail-optimized segments, two leaves per rail, two planes",
    source="Qian et al., Alibaba HPN, SIGCOMM'24: 128 boxes a segment, 15 segments a pod, leaves of "
    "128 x 200 Gb/s down and 60 x 400 Gb/s up, spines of 120 ports down and 8 up; NVLink 400 GB/s both ways together",
    example="hpn:segments=2,boxes=2,gpus=2,spines=2",
)

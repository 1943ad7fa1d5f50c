"""MegaScale: a three-layer Clos of equal switches at full bisection, whose boxes have a NIC on each of eight leaves.

      cores            32 planes, one for each spine of a pod
      spines           32 per pod, 32 ports down and 32 up
      leaves (ToR)     a set of 8 for 64 boxes: NIC n on leaf n, 200 Gb/s each; 32 ports of 400 Gb/s up
      boxes            8 GPUs, 8 NICs

Pictures: leaves and boxes in `rail_groups.py`, the layers above in `tiers.py`. The paper gives ports and layers but not
the size of a pod; 32 leaves follow from the ports of its spines.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_A100_RATES, BoxRates, Wire
from syntony.topologies.families.clusters.rail_groups import pod_of, wire_rail_groups, within_a_group
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import cores_for, trunk, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology


def megascale(
    pods: int = 6,
    groups: int = 4,
    boxes: int = 64,
    gpus: int = 8,
    spines: int = 32,
    cores: int = 0,
    rates: BoxRates = DGX_A100_RATES,
) -> Topology:
    """`pods` of `groups` sets of leaves with `boxes` boxes each; by default 12,288 GPUs.

    Symmetry: permute boxes and rails of a group, groups of a pod, pods, cores of a plane, and planes.
    """
    for what, number in (("pods", pods), ("groups", groups), ("gpus", gpus), ("spines", spines)):
        require(number >= 1, f"megascale: {what} is {number}; it must be at least 1")
    require(pods * groups * boxes >= 2, f"megascale: boxes is {boxes}; the network joins at least 2 boxes")
    cores = cores_for("megascale", pods, cores, usual=spines * spines, planes=spines)
    wiring = Wiring("megascale")
    inside = Boxes(
        family="megascale",
        boxes=pods * groups * boxes,
        gpus=gpus,
        nics=gpus,
        rates=rates,
    )
    sets = wire_rail_groups(wiring, inside, pods * groups, leaf="tor")
    by_pod = [sets[p * groups : (p + 1) * groups] for p in range(pods)]
    up = trunk(boxes * rates.nic_bandwidth, spines, Fraction(1))
    top = Wire(trunk(groups * gpus * up, cores // spines, Fraction(1)), rates.nic_alpha) if cores else None
    tiers = wire_tiers(wiring, [pod_of(pod) for pod in by_pod], spines, Wire(up, rates.nic_alpha), cores, spines, top)
    size = wiring.size
    whole_pods = [
        [node for group in pod for node in group.nodes] + [*row] for pod, row in zip(by_pod, tiers.spines, strict=True)
    ]
    return wiring.topology(
        [
            *within_a_group(size, sets[0]),
            *swap_and_turn(size, [group.nodes for group in by_pod[0]]),
            *swap_and_turn(size, whole_pods),
            *tiers.symmetries(size),
        ]
    )


MEGASCALE = Family(
    name="megascale",
    build=megascale,
    parameters=(
        Parameter("pods", count, "pods; more than one are joined by cores"),
        Parameter("groups", count, "sets of leaves in a pod, a leaf per rail"),
        Parameter("boxes", count, "boxes on a set of leaves"),
        Parameter("gpus", count, "GPUs in a box, each with its NIC; the leaves of a set"),
        Parameter("spines", count, "spine switches in a pod"),
        Parameter("cores", count, "core switches, a multiple of the spines; 0: spines squared, if there are pods"),
        *BOX_PARAMETERS,
    ),
    summary="ByteDance MegaScale: three-layer Clos, 1:1 everywhere, a NIC on each of eight leaves",
    source="Jiang et al., MegaScale, NSDI'24, section 3.6: Tomahawk 4 of 64 x 400 Gb/s, half down and half up, eight "
    "200 Gb/s NICs on eight leaves that 64 servers share; boxes as dgx-a100",
    example="megascale:pods=2,groups=1,boxes=2,gpus=4,spines=2,cores=2",
)

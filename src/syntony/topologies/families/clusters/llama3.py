r"""Meta's cluster for Llama 3: racks of two boxes under one leaf, pods at full bisection, pods joined 7:1.

      aggregation       16 switches in all, one over each cluster switch of every pod; 7:1 oversubscribed
      cluster           16 switches per pod (the paper does not say how many), 1:1
      top of rack       192 per pod, each with two boxes: 16 NICs of 400 Gb/s
      boxes             8 GPUs, 8 NICs

A pod has 3,072 GPUs, eight pods 24,576. The boxes are those of `boxes.py`, and the layers above the racks those of
`tiers.py`, with a plane of aggregation switches for each cluster switch of a pod.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag, ratio
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_H100_RATES, BoxRates, Wire
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import Pod, Switches, cores_for, trunk, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology


def llama3_24k(
    pods: int = 8,
    racks: int = 192,
    boxes: int = 2,
    gpus: int = 8,
    spines: int = 16,
    cores: int = 0,
    oversubscription: Fraction = Fraction(7),
    rates: BoxRates = DGX_H100_RATES,
    nvls: bool = True,
) -> Topology:
    """`pods` of `racks` of `boxes` boxes. GPUs are numbered box by box, rack by rack, pod by pod.

    Symmetry: permute the GPUs of a box with their NICs, boxes of a rack, racks of a pod, pods, cores, and planes.
    """
    sizes = (("pods", pods), ("racks", racks), ("boxes", boxes), ("gpus", gpus), ("spines", spines))
    for what, number in sizes:
        require(number >= 1, f"llama3-24k: {what} is {number}; it must be at least 1")
    require(pods * racks * boxes >= 2, "llama3-24k: one box has no network; ask for more pods, racks or boxes")
    cores = cores_for("llama3-24k", pods, cores, usual=spines, planes=spines)
    wiring = Wiring("llama3-24k")
    inside = Boxes(
        family="llama3-24k",
        boxes=pods * racks * boxes,
        gpus=gpus,
        nics=gpus,
        rates=rates,
        nvls=nvls,
    )
    wired = inside.wire(wiring)
    rack_width = boxes * (gpus + 1.0)
    height = 1.0 + max(1.5, 0.14 * rack_width)
    tors, blocks = [], []
    for rack in range(pods * racks):
        tor = wiring.switch(f"tor{rack // racks}.{rack % racks}", ((rack + 0.5) * rack_width - 0.5, height))
        mine = wired[rack * boxes : (rack + 1) * boxes]
        for nic in (nic for box in mine for nic in box.nics):
            wiring.cable(nic, tor, rates.nic_bandwidth, rates.nic_alpha)
        tors.append(tor)
        blocks.append([tor, *(node for box in mine for node in box.nodes)])
    up = trunk(boxes * gpus * rates.nic_bandwidth, spines, Fraction(1))
    top = Wire(trunk(racks * up, cores // spines, oversubscription), rates.nic_alpha) if cores else None
    places = [
        Pod(tors[p * racks : (p + 1) * racks], p * racks * rack_width, (p + 1) * racks * rack_width - 1.0, height)
        for p in range(pods)
    ]
    names = Switches(spine="cluster", core="aggregation")
    tiers = wire_tiers(wiring, places, spines, Wire(up, rates.nic_alpha), cores, spines, top, names)
    size = wiring.size
    whole_pods = [
        [node for block in blocks[p * racks : (p + 1) * racks] for node in block] + [*tiers.spines[p]]
        for p in range(pods)
    ]
    return wiring.topology(
        [
            *swap_and_turn(size, [*zip(wired[0].gpus, wired[0].nics, strict=True)]),
            *swap_and_turn(size, [box.nodes for box in wired[:boxes]]),
            *swap_and_turn(size, blocks[:racks]),
            *swap_and_turn(size, whole_pods),
            *tiers.symmetries(size),
        ]
    )


LLAMA3_24K = Family(
    name="llama3-24k",
    build=llama3_24k,
    parameters=(
        Parameter("pods", count, "pods; more than one are joined by aggregation switches"),
        Parameter("racks", count, "racks in a pod, each with its leaf"),
        Parameter("boxes", count, "boxes in a rack"),
        Parameter("gpus", count, "GPUs in a box, each with its NIC"),
        Parameter("spines", count, "cluster switches in a pod"),
        Parameter("cores", count, "aggregation switches, a multiple of the spines; 0: as many, if there are pods"),
        Parameter("oversubscription", ratio, "a cluster switch's bandwidth to the racks over that to the aggregation"),
        *BOX_PARAMETERS,
        Parameter("nvls", flag, "whether the NVSwitches multicast and reduce"),
    ),
    summary="Meta's 24,576 H100 for Llama 3: pods of 3,072 at full bisection, joined 7:1",
    source="The Llama 3 herd of models (Meta, 2024), section 3.3.1: 400 Gb/s, 16 GPUs a rack, 192 racks a pod, 8 pods, "
    "1:7 oversubscription above; boxes as dgx-h100",
    example="llama3-24k:pods=2,racks=2,boxes=2,gpus=2,spines=2",
)

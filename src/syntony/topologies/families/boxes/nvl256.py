r"""NVIDIA DGX GH200: 256 Grace Hopper chips on two layers of NVSwitches, in three planes.

      spines of plane 0 (12)    of plane 1       of plane 2        4 NVLinks from a leaf to each spine of its plane
        │   \                      │                │
      leaf 0.0   leaf 1.0 ..    leaf 0.1 ..      leaf 0.2 ..       a leaf of every plane in each of 32 boxes
        │  six NVLinks from every GPU of the box
      gpu 0 .. gpu 7

A GPU's 18 NVLinks are six to each of its box's three leaves, and the layers have equal bandwidth. Full size: 96 leaves
and 36 spines.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.boxes.rates import NVLINK_ALPHA
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Topology

_NVLINKS = 18


def nvl256(
    boxes: int = 32,
    gpus: int = 8,
    planes: int = 3,
    spines: int = 12,
    bandwidth: Fraction = Fraction(25 * 10**9),
    alpha: float = NVLINK_ALPHA,
) -> Topology:
    """`boxes` of `gpus`, a leaf per plane in each box, `spines` in each plane; `bandwidth` is that of one NVLink.

    Symmetry: permute boxes, GPUs of a box, planes, spines of a plane.
    """
    for what, number in (("boxes", boxes), ("gpus", gpus), ("spines", spines)):
        require(number >= 1, f"nvl256: {what} is {number}; it must be at least 1")
    require(
        planes >= 1 and _NVLINKS % planes == 0,
        f"nvl256: planes is {planes}; it must divide the {_NVLINKS} NVLinks of a GPU",
    )
    wiring = Wiring("nvl256")
    width = boxes * (gpus + 1.0)
    members = [[wiring.rank((box * (gpus + 1.0) + g, 0.0)) for g in range(gpus)] for box in range(boxes)]
    leaves = [
        [wiring.switch(f"leaf{box}.{p}", (box * (gpus + 1.0) + x, 2.0)) for p, x in enumerate(spread(0, gpus, planes))]
        for box in range(boxes)
    ]
    height = 3.5 + 0.1 * width
    tops = [
        [wiring.switch(f"spine{p}.{s}", (x, height)) for s, x in enumerate(spread(p * width / planes, (p + 1) * width
         / planes, spines))]
        for p in range(planes)
    ]  # fmt: skip
    down = _NVLINKS // planes * bandwidth
    for box in range(boxes):
        for gpu in members[box]:
            for leaf in leaves[box]:
                wiring.cable(gpu, leaf, down, alpha)
        for leaf, above in zip(leaves[box], tops, strict=True):
            for spine in above:
                wiring.cable(leaf, spine, gpus * down / spines, alpha)
    size = wiring.size
    return wiring.topology(
        [
            *swap_and_turn(size, [[gpu] for gpu in members[0]]),
            *swap_and_turn(size, [[*members[box], *leaves[box]] for box in range(boxes)]),
            *swap_and_turn(size, [[*(leaves[box][p] for box in range(boxes)), *tops[p]] for p in range(planes)]),
            *swap_and_turn(size, [[spine] for spine in tops[0]]),
        ]
    )


NVL256 = Family(
    name="nvl256",
    build=nvl256,
    parameters=(
        Parameter("boxes", count, "boxes"),
        Parameter("gpus", count, "GPUs in a box"),
        Parameter("planes", count, "leaves of a box; divides 18, the number of a GPU's NVLinks"),
        Parameter("spines", count, "switches above, in each plane"),
        Parameter("bandwidth", rate, "bytes/s of one NVLink, per direction"),
        Parameter("alpha", seconds, "seconds per NVLink"),
    ),
    summary="NVIDIA DGX GH200: 256 GPUs on two layers of NVSwitches",
    source="NVIDIA, Announcing DGX GH200 (2023) and Grace Hopper white paper: 256 GPUs, 900 GB/s of NVLink 4 per GPU "
    "in both directions together, 96 switches in the first layer, 36 in the second, a full fat tree; latency: TACCL "
    "(NSDI'23) table 1, measured on an older box",
    example="nvl256:4",
)

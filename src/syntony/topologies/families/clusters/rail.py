"""Rail-optimized cluster: NIC n of every box is on switch n, its rail; rails meet only inside the boxes.

        rail 0 ────┬───────────┬────        rail 1 ────┬───────────┬────
              nic 0.0      nic 1.0                 nic 0.1      nic 1.1
                 │            │                       │            │
        box 0: gpu 0       gpu 0 of box 1    box 0: gpu 1       gpu 1 of box 1

Within a box the GPUs share an NVSwitch (picture in `boxes.py`). There is no spine above the rails, so a message between
different rails must go through another GPU of its box.
"""

from __future__ import annotations

from syntony.base.quantity import count
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_H100_RATES, BoxRates
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import require
from syntony.topologies.topology import Topology


def rail(
    boxes: int = 4,
    gpus: int = 8,
    rails: int = 8,
    rates: BoxRates = DGX_H100_RATES,
) -> Topology:
    """`boxes` >= 2 boxes of `gpus` GPUs with `rails` NICs; of `gpus` and `rails` one divides the other."""
    require(boxes >= 2, f"rail: boxes is {boxes}; rails join at least 2 boxes (a single one is star:{max(gpus, 1)})")
    return Boxes(
        family="rail",
        boxes=boxes,
        gpus=gpus,
        nics=rails,
        rates=rates,
        rails=True,
    ).topology(f"rail:boxes={boxes},gpus={gpus},rails={rails}")


RAIL = Family(
    name="rail",
    build=rail,
    parameters=(
        Parameter("boxes", count, "boxes"),
        Parameter("gpus", count, "GPUs in a box"),
        Parameter("rails", count, "NICs in a box, and switches that join them"),
        *BOX_PARAMETERS,
    ),
    summary="boxes of GPUs whose NICs of equal number share a switch",
    source="shape: rail-only networks (Wang et al., HOTI'24), NVIDIA DGX SuperPOD without its spine; rates as dgx-h100",
    example="rail:boxes=4,gpus=8,rails=8",
)

"""NVIDIA DGX SuperPOD: scalable units of boxes, a leaf per rail in each unit, spines above, cores above those if large.

      two layers                          three layers
      spines over all leaves              cores (planes of them) over all spines
      leaves: unit u, rail r              spines of rail r over the leaves of rail r in all units
      boxes                               leaves: unit u, rail r
                                          boxes

NIC n of a box is on leaf n of its unit (`rail_groups.py`), and every layer has the bandwidth of the one below. In three
layers a spine has a cable to every core of its plane (`tiers.py`).
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_A100_RATES, DGX_H100_RATES, BoxRates, Wire
from syntony.topologies.families.clusters.rail_groups import (
    along_the_rails,
    pod_of,
    wire_rail_groups,
    wire_spines_by_rail,
    within_a_group,
)
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import Switches, trunk, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology


def superpod(
    units: int = 4,
    boxes: int = 32,
    gpus: int = 8,
    spines: int = 16,
    cores: int = 0,
    planes: int = 1,
    rates: BoxRates = DGX_H100_RATES,
    nvls: bool = True,
    sharp: bool = False,
    *,
    family: str = "superpod",
) -> Topology:
    """`units` scalable units of `boxes` DGX H100; `spines` and `cores` are counted over all units.

    Symmetry: permute units, boxes of a unit, rails (of one unit alone, where there are no cores), spines and cores.
    """
    for what, number in (("units", units), ("gpus", gpus), ("spines", spines), ("planes", planes)):
        require(number >= 1, f"{family}: {what} is {number}; it must be at least 1")
    require(units * boxes >= 2, f"{family}: boxes is {boxes}; a SuperPOD joins at least 2 boxes")
    require(cores > 0 or planes == 1, f"{family}: planes is {planes}, but planes divide cores, and there are none")
    require(cores % planes == 0, f"{family}: cores is {cores}; it must be a multiple of the {planes} planes")
    require(
        cores == 0 or spines % (gpus * planes) == 0,
        f"{family}: spines is {spines}; under cores it must be a multiple of {gpus} rails times {planes} planes",
    )
    wiring = Wiring(family)
    inside = Boxes(
        family=family,
        boxes=units * boxes,
        gpus=gpus,
        nics=gpus,
        rates=rates,
        nvls=nvls,
    )
    switches = Switches(multicast=sharp, reduces=sharp)
    groups = wire_rail_groups(wiring, inside, units, multicast=sharp, reduces=sharp)
    over_a_leaf = spines // gpus if cores else spines
    up = trunk(boxes * rates.nic_bandwidth, over_a_leaf, Fraction(1))
    trunks = Wire(up, rates.nic_alpha)
    if cores:
        top = Wire(trunk(units * up, cores // planes, Fraction(1)), rates.nic_alpha)
        tiers = wire_spines_by_rail(wiring, groups, over_a_leaf, trunks, cores, planes, top, switches)
        return wiring.topology(along_the_rails(wiring.size, groups, tiers))
    tiers = wire_tiers(wiring, [pod_of(groups)], spines, trunks, switches=switches)
    return wiring.topology(
        [
            *within_a_group(wiring.size, groups[0]),
            *swap_and_turn(wiring.size, [group.nodes for group in groups]),
            *tiers.symmetries(wiring.size),
        ]
    )


def superpod_a100(
    units: int = 7,
    boxes: int = 20,
    gpus: int = 8,
    spines: int = 80,
    cores: int = 28,
    planes: int = 2,
    rates: BoxRates = DGX_A100_RATES,
    sharp: bool = False,
) -> Topology:
    """The same of DGX A100 boxes, whose NVSwitches only forward; at full size it has cores. Symmetry as `superpod`."""
    return superpod(units, boxes, gpus, spines, cores, planes, rates, nvls=False, sharp=sharp, family="superpod-a100")


_SHAPE = (
    Parameter("units", count, "scalable units"),
    Parameter("boxes", count, "boxes in a unit"),
    Parameter("gpus", count, "GPUs in a box, each with its NIC; the leaves of a unit"),
    Parameter("spines", count, "spine switches in all"),
    Parameter("cores", count, "core switches in all; 0: two layers, every spine over all leaves"),
    Parameter("planes", count, "planes that the cores are divided into"),
    *BOX_PARAMETERS,
)
_SHARP = Parameter("sharp", flag, "whether the InfiniBand switches multicast and reduce")

SUPERPOD = Family(
    name="superpod",
    build=superpod,
    parameters=(*_SHAPE, Parameter("nvls", flag, "whether the NVSwitches multicast and reduce"), _SHARP),
    summary="NVIDIA DGX SuperPOD H100: units of 32 boxes, a leaf per rail, spines above",
    source="NVIDIA DGX SuperPOD reference architectures H100 (RA-11333) and B200, table of component counts: 4 units "
    "have 32 leaves and 16 spines; 16 units 128, 128 and 64 cores (here cores=64,planes=2); rates as dgx-h100",
    example="superpod:units=2,boxes=2,gpus=4,spines=2",
)

SUPERPOD_A100 = Family(
    name="superpod-a100",
    build=superpod_a100,
    parameters=(*_SHAPE, _SHARP),
    summary="NVIDIA DGX SuperPOD A100: units of 20 boxes, spines per rail, cores above",
    source="NVIDIA DGX SuperPOD A100 reference architecture RA-09950: 140 boxes, 56 leaves, 80 spines, 28 cores, of 40 "
    "ports each; which spine is on which core follows from the port counts; rates as dgx-a100",
    example="superpod-a100:units=3,boxes=2,gpus=2,spines=4,cores=4,planes=2",
)

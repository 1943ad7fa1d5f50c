"""Rail-only network: GPUs of equal number in all high-bandwidth domains share a rail, and rails never meet.

      rail 0: a switch, or a Clos of its own       rail 1: another
        │         │                                  │         │
       gpu 0 of domain 0, gpu 0 of domain 1, ...    gpu 1 of domain 0, gpu 1 of domain 1, ...

A message between rails goes through another GPU of its domain. A rail is one switch if the domains are no more than its
ports, else a two-layer Clos at full bisection: leaves with half of their ports down, spines above
(`rail_groups.py`). With one switch per rail and as many NICs as GPUs this is the family `rail`.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_H100_RATES, BoxRates, Wire
from syntony.topologies.families.clusters.rail_groups import along_the_rails, wire_rail_groups, wire_spines_by_rail
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.tiers import trunk
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology


def rail_only(
    domains: int = 4,
    gpus: int = 8,
    radix: int = 64,
    rates: BoxRates = DGX_H100_RATES,
) -> Topology:
    """`domains` of `gpus` GPUs, on switches with `radix` ports.

    Symmetry: permute rails; domains of a leaf; leaves; the spines of a rail.
    """
    require(domains >= 2, f"rail-only: domains is {domains}; rails join at least 2 domains")
    require(radix >= 2 and radix % 2 == 0, f"rail-only: radix is {radix}; a switch has an even number of ports")
    down = domains if domains <= radix else radix // 2
    require(
        domains % down == 0,
        f"rail-only: domains is {domains}; beyond {radix} it must be a multiple of {radix // 2}, half the ports",
    )
    groups_count = domains // down
    require(groups_count <= radix, f"rail-only: domains is {domains}; two layers reach {radix * radix // 2}")
    wiring = Wiring("rail-only")
    boxes = Boxes(
        family="rail-only",
        boxes=domains,
        gpus=gpus,
        nics=gpus,
        rates=rates,
    )
    groups = wire_rail_groups(wiring, boxes, groups_count, leaf="rail" if groups_count == 1 else "leaf")
    tiers = None
    if groups_count > 1:
        spines = -(-groups_count * down // radix)
        up = Wire(trunk(down * rates.nic_bandwidth, spines, Fraction(1)), rates.nic_alpha)
        tiers = wire_spines_by_rail(wiring, groups, spines, up)
    return wiring.topology(along_the_rails(wiring.size, groups, tiers))


RAIL_ONLY = Family(
    name="rail-only",
    build=rail_only,
    parameters=(
        Parameter("domains", count, "high-bandwidth domains (boxes)"),
        Parameter("gpus", count, "GPUs in a domain, each with its NIC and its rail"),
        Parameter("radix", count, "ports of a switch; with more domains a rail is a two-layer Clos"),
        *BOX_PARAMETERS,
    ),
    summary="boxes of GPUs joined by rails that never meet, each rail a switch or a Clos",
    source="Wang et al., Rail-only, HOTI'24; rates as dgx-h100",
    example="rail-only:domains=8,gpus=2,radix=4",
)

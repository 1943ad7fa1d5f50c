r"""Rail groups: boxes whose NICs of equal number share a leaf switch, so that a leaf is a rail of its group.

             leaf g.0            leaf g.1
              │     \           /     │
              │       \       /       │         With two planes every rail of a group has two leaves, a and b:
              │         \   /         │         each NIC has a port on both.
            nic 0      nic 0          │
              │  nic 1   │   nic 1 ───┘
             box 0      box 1                   (nic 1 of box 0 is on leaf g.1 too)

The boxes are those of `boxes.py`, with a NIC for each GPU. Spines above join either all leaves, or the leaves of one
rail in all groups; then rails are connected by cores, or only inside the boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syntony.topologies.families.boxes.boxes import Box, Boxes
from syntony.topologies.families.boxes.rates import Wire
from syntony.topologies.families.switched.tiers import FORWARDING, Pod, Switches, Tiers, wire_tiers
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, spread
from syntony.topologies.topology import Permutation


@dataclass(frozen=True)
class RailGroup:
    """Boxes and their leaves, `leaves[plane][rail]`; drawn from x `left` to `right`, the leaves up to y `height`."""

    boxes: tuple[Box, ...]
    leaves: tuple[tuple[int, ...], ...]
    left: float
    right: float
    height: float

    @property
    def rails(self) -> int:
        return len(self.leaves[0])

    @property
    def nodes(self) -> list[int]:
        """All nodes; corresponding nodes of two groups are at equal positions."""
        return [node for box in self.boxes for node in box.nodes] + [leaf for plane in self.leaves for leaf in plane]

    def lane(self, rail: int) -> list[int]:
        """The nodes of a rail: a GPU and a NIC of every box, and the leaves."""
        return [node for box in self.boxes for node in (box.gpus[rail], box.nics[rail])] + [
            plane[rail] for plane in self.leaves
        ]


def wire_rail_groups(
    wiring: Wiring,
    boxes: Boxes,
    groups: int,
    planes: int = 1,
    leaf: str = "leaf",
    multicast: bool = False,
    reduces: bool = False,
) -> tuple[RailGroup, ...]:
    """Adds all boxes and their leaves; each of the `groups` has an equal share of them."""
    wired = boxes.wire(wiring)
    share = boxes.boxes // groups
    span = share * (boxes.gpus + 1.0) - 1.0
    height = 1.0 + max(1.5, 0.14 * span)
    result = []
    for g in range(groups):
        left = g * share * (boxes.gpus + 1.0)
        xs = spread(left - 0.4, left + span + 0.4, boxes.nics * planes)
        leaves = [
            tuple(
                wiring.switch(
                    f"{leaf}{g}.{rail}" + "abcdefgh"[plane] * (planes > 1),
                    (xs[rail * planes + plane], height + 0.5 * plane),
                    multicast=multicast,
                    reduces=reduces,
                )
                for rail in range(boxes.nics)
            )
            for plane in range(planes)
        ]
        mine = wired[g * share : (g + 1) * share]
        for box in mine:
            for rail, nic in enumerate(box.nics):
                for plane in range(planes):
                    wiring.cable(nic, leaves[plane][rail], boxes.rates.nic_bandwidth, boxes.rates.nic_alpha)
        result.append(RailGroup(tuple(mine), tuple(leaves), left, left + span, height + 0.5 * (planes - 1)))
    return tuple(result)


def pod_of(groups: Sequence[RailGroup]) -> Pod:
    """One pod of all leaves of the groups."""
    leaves = [leaf for group in groups for plane in group.leaves for leaf in plane]
    return Pod(leaves, groups[0].left, groups[-1].right, groups[0].height)


def wire_spines_by_rail(
    wiring: Wiring,
    groups: Sequence[RailGroup],
    spines: int,
    below: Wire,
    cores: int = 0,
    planes: int = 1,
    above: Wire | None = None,
    switches: Switches = FORWARDING,
) -> Tiers:
    """Adds `spines` for each rail, over its leaves in all groups; and cores, if any, which connect the rails."""
    left, rails = groups[0].left, groups[0].rails
    width = (groups[-1].right - left) / rails
    pods = [
        Pod(
            [group.leaves[0][rail] for group in groups],
            left + rail * width,
            left + (rail + 0.9) * width,
            groups[0].height + 0.1 * width,
        )
        for rail in range(rails)
    ]
    return wire_tiers(wiring, pods, spines, below, cores, planes, above, switches)


def within_a_group(size: int, group: RailGroup) -> list[Permutation]:
    """Symmetries if spines join all leaves: permute the boxes of a group; permute its rails."""
    return [
        *swap_and_turn(size, [box.nodes for box in group.boxes]),
        *swap_and_turn(size, [group.lane(rail) for rail in range(group.rails)]),
    ]


def along_the_rails(size: int, groups: Sequence[RailGroup], tiers: Tiers | None) -> list[Permutation]:
    """Symmetries if spines join a rail's leaves: permute a group's boxes, groups, and rails with their spines."""
    rails = [
        [node for group in groups for node in group.lane(rail)] + [*(tiers.spines[rail] if tiers else ())]
        for rail in range(groups[0].rails)
    ]
    return [
        *swap_and_turn(size, [box.nodes for box in groups[0].boxes]),
        *swap_and_turn(size, [group.nodes for group in groups]),
        *swap_and_turn(size, rails),
        *(tiers.symmetries(size) if tiers else ()),
    ]

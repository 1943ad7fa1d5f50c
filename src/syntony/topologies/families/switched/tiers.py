r"""Tiers: the switches above the leaves of a fabric, in one layer (spines) or two (spines and cores).

     core0.0   core0.1           core1.0   core1.1        plane 0 and plane 1, each with two cores
        │  \   /  │                 │  \   /  │
        │    X    │                 │    X    │           spines 0 of all pods in plane 0, spines 1 in plane 1
     spine0.0  spine1.0          spine0.1  spine1.1

Every leaf has a cable to every spine of its pod. Spine s of a pod belongs to plane s modulo the number
of planes, and every spine has a cable to every core of its plane.

A cable stands for all cables between the same two switches and has their total bandwidth. A switch with b bytes/s of
links below, **oversubscribed** o to 1, has b / o bytes/s of links above, in equal shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from syntony.topologies.families.boxes.rates import Wire
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Permutation


@dataclass(frozen=True)
class Pod:
    """Leaves that share spines, and where they are drawn: x from `left` to `right`, y at `height`."""

    leaves: Sequence[int]
    left: float
    right: float
    height: float


@dataclass(frozen=True)
class Switches:
    """Names and abilities of the switches of all tiers."""

    spine: str = "spine"
    core: str = "core"
    multicast: bool = False
    reduces: bool = False


FORWARDING = Switches()


@dataclass(frozen=True)
class Tiers:
    """The switches above the leaves: spines by pod, cores by plane (a single pod has none)."""

    spines: tuple[tuple[int, ...], ...]
    cores: tuple[tuple[int, ...], ...]

    def symmetries(self, size: int) -> list[Permutation]:
        """Symmetries of `size` nodes that move no leaf: permute the cores of a plane, the spines of a plane, planes."""
        planes = [
            [*(spine for pod in self.spines for spine in pod[p :: len(self.cores)]), *cores]
            for p, cores in enumerate(self.cores)
        ]
        alike = self.spines[0][:: len(self.cores) or 1]
        return [
            *swap_and_turn(size, [[spine] for spine in alike]),
            *swap_and_turn(size, [[core] for core in (self.cores[0] if self.cores else ())]),
            *swap_and_turn(size, planes),
        ]


def trunk(below: Fraction, switches: int, oversubscription: Fraction) -> Fraction:
    """Bytes/s of each cable to `switches` above, of a switch with `below` bytes/s of links below."""
    return below / (oversubscription * switches)


def wire_tiers(
    wiring: Wiring,
    pods: Sequence[Pod],
    spines: int,
    below: Wire,
    cores: int = 0,
    planes: int = 1,
    above: Wire | None = None,
    switches: Switches = FORWARDING,
) -> Tiers:
    """Adds `spines` to every pod, joined to its leaves by `below`, and `cores` in all, joined to the spines by `above`.

    Without `above` there are no cores. The cores must be a multiple of the planes, and so must the spines.
    """
    wide = 0.08 * len(switches.spine) + 0.7  # room for a name
    close = wide if len(pods) == 1 else min(wide, 0.95 * (pods[1].left - pods[0].left) / spines)

    def added(kind: str, name: str, x: float, y: float) -> int:
        return wiring.switch(f"{kind}{name}", (x, y), multicast=switches.multicast, reduces=switches.reduces)

    spine_rows = []
    for p, pod in enumerate(pods):
        row = []
        height = pod.height + max(1.5, 0.14 * max(pod.right - pod.left, spines * wide))
        for s, x in enumerate(spread(pod.left, pod.right, spines, close)):
            row.append(added(switches.spine, f"{p}.{s}" if len(pods) > 1 else f"{s}", x, height))
        for leaf in pod.leaves:
            for spine in row:
                wiring.cable(leaf, spine, below.bandwidth, below.alpha)
        spine_rows.append(tuple(row))
    if above is None:
        return Tiers(tuple(spine_rows), ())
    left, right = min(pod.left for pod in pods), max(pod.right for pod in pods)
    height += max(1.5, 0.14 * max(right - left, cores * wide))
    ids = [
        added(switches.core, f"{c * planes // cores}.{c % (cores // planes)}" if planes > 1 else f"{c}", x, height)
        for c, x in enumerate(spread(left, right, cores, wide))
    ]
    core_rows: list[tuple[int, ...]] = [
        tuple(ids[p * cores // planes : (p + 1) * cores // planes]) for p in range(planes)
    ]
    for spine_row in spine_rows:
        for s, spine in enumerate(spine_row):
            for core in core_rows[s % planes]:
                wiring.cable(spine, core, above.bandwidth, above.alpha)
    return Tiers(tuple(spine_rows), tuple(core_rows))


def cores_for(family: str, pods: int, cores: int, usual: int, planes: int) -> int:
    """The number of cores over `pods` pods: `cores`, or `usual` if that is 0; none for a single pod."""
    require(pods > 1 or cores == 0, f"{family}: cores is {cores}; cores join pods, but pods is {pods}; leave cores out")
    wanted = 0 if pods == 1 else cores or usual
    require(
        wanted % planes == 0, f"{family}: cores is {cores}; it must be a multiple of the {planes} planes of the spines"
    )
    return wanted

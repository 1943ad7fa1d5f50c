"""Global cables: how a dragonfly joins every two of its groups, and how groups are drawn in a circle.

The global ports of a group are counted along its switches. Port d of a group leads d + 1 groups back round the circle,
and arrives there at port g - 2 - d, which leads as far the other way:

      group 0: ports 0 1 2       0 to group 3, 1 to group 2, 2 to group 1          four groups, three ports each
      group 1: ports 0 1 2       0 to group 0, 1 to group 3, 2 to group 2
      ...                                                              cables: 0.0 - 3.2, 0.1 - 2.1, 0.2 - 1.0, ...

With more ports than that, the pattern repeats, and ports that are left over stay unused. So rotating the circle by one
group is a symmetry. If every port is used, mirroring is one too, with the switches of each group in reverse order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from syntony.topologies.graph.wiring import Place

Port = tuple[int, int]
"""A group, and one of its global ports."""


def global_cables(groups: int, ports: int) -> Iterator[tuple[Port, Port]]:
    """The ends of every cable between groups that have `ports` global ports each; `ports` is at least groups - 1."""
    others = groups - 1
    for group in range(groups):
        for port in range(ports // others * others if others else 0):
            turn, step = divmod(port, others)
            end = (group - step - 1) % groups, turn * others + others - 1 - step
            if (group, port) < end:
                yield (group, port), end


def is_mirrored(groups: int, ports: int) -> bool:
    """Whether mirroring the circle of groups, port i of each to port ports - 1 - i, keeps all global cables."""
    return groups == 1 or ports % (groups - 1) == 0


@dataclass(frozen=True)
class Circle:
    """`groups` in a circle; each is `width` wide, and rotated so that its upper side is the outside of the circle."""

    groups: int
    width: float

    def place(self, group: int, along: float, outwards: float) -> Place:
        """Coordinates of a node: `along` clockwise from the middle of its group, `outwards` from the circle."""
        angle = 2 * math.pi * group / self.groups
        sine, cosine = math.sin(angle), math.cos(angle)
        radius = self._radius + outwards
        return radius * sine + along * cosine, radius * cosine - along * sine

    @property
    def _radius(self) -> float:
        if self.groups < 3:
            return 1.5 * (self.groups - 1)
        return max(1.5, self.width / (2 * math.tan(math.pi / self.groups)))

"""Finds which hosts are near each other: levels, possibly unequal, of a group with one rank per host.

    7 hosts     0 1 2 3 ── switch ── switch ── 4 5 6       probed: [0 1 2 3] [4 5 6]
                             the wire between is slower

`hierarchical` and `two_level` are then built from these levels: most bytes stay within a level. Luo et al., PLink
(MLSys 2020), also probe a data centre for its racks.
"""

from __future__ import annotations

from syntony.collectives import probe
from syntony.collectives.verbs import Verbs
from syntony.topologies.probed.locality import clusters

MOST = 32  # hosts; their pairs are probed one after another

_EFFORT = probe.Effort(largest=256 << 10, enough=0.02, repeat=2)


def find(group: Verbs) -> tuple[tuple[int, ...], ...]:
    """The levels; () if no hosts are nearer than others, if there are fewer than 3 or more than MOST, or if some have
    several ranks, which already form levels. The same on every rank. Collective."""
    if not 3 <= group.size <= MOST or len(group._core.boxes) != group.size:
        return ()
    hosts = tuple(f"host{rank}" for rank in range(group.size))
    parts = clusters(probe.pairs_of(group, hosts, _EFFORT)).parts
    return tuple(part.ranks for part in parts) if len(parts) < group.size else ()

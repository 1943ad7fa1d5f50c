"""Which hosts are near each other: levels of a group whose hosts have one rank each, unequal ones too.

    7 hosts     0 1 2 3 ── switch ── switch ── 4 5 6       probed: [0 1 2 3] [4 5 6]
                             the wire between is slower

They are what `hierarchical` and `two_level` are made of then: most bytes stay within a level. Luo et al., PLink (MLSys
2020), who probe a data centre for its racks, too.
"""

from __future__ import annotations

from syntony.collectives import probe
from syntony.collectives.verbs import Verbs
from syntony.topologies.probed.locality import clusters

MOST = 32  # hosts, whose pairs are probed one after another

_EFFORT = probe.Effort(largest=256 << 10, enough=0.02, repeat=2)


def find(group: Verbs) -> tuple[tuple[int, ...], ...]:
    """The levels; () where no hosts are nearer than others, where there are fewer than 3 or more than MOST, or where
    some have several ranks: those are levels enough. The same on every rank. Collective."""
    if not 3 <= group.size <= MOST or len(group._core.boxes) != group.size:
        return ()
    hosts = tuple(f"host{rank}" for rank in range(group.size))
    parts = clusters(probe.pairs_of(group, hosts, _EFFORT)).parts
    return tuple(part.ranks for part in parts) if len(parts) < group.size else ()

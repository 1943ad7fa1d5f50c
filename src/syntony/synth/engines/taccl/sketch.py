"""A communication sketch: what a person knows about a good schedule, given as a hint to the search.

    boxes of 4, one NIC each               relays = { 3 = [0] }         rank 3 of a box sends to rank 0 of every other
      0 ─ 1      4 ─ 5                     carries = { 3 = [0, 1, 2, 3] }    with the chunks of all four
      │ X │      │ X │
      2 ─ 3 ───▶ 4 ..                      symmetry = [[4, 8]]          box 1 does what box 0 does

Shah et al., TACCL (NSDI'23). Ranks are those of the collective; positions count from a box's first rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from syntony.topologies.hosts import hosts_of
from syntony.topologies.topology import Topology, TopologyError

Connections = Literal["any", "few", "many"]
CONNECTIONS: tuple[Connections, ...] = get_args(Connections)

Relays = tuple[tuple[int, tuple[int, ...]], ...]
"""Positions that send out of a box, and those in every other box that each sends to."""


@dataclass(frozen=True)
class Between:
    """How boxes of `box` ranks, numbered one after another, are joined.

    relays     explicit, or `same`: each rank to that at its position; or `all`: each rank to all
    carries    per sender the positions whose chunks leave the box by it; empty: any sender takes any chunk. A chunk
               then leaves its box by these senders only, and never comes back
    own_first  a sender sends its own chunks before those of others
    """

    box: int
    relays: Relays | Literal["same", "all"] = "same"
    carries: Relays = ()
    own_first: bool = False


@dataclass(frozen=True)
class Sketch:
    """The restrictions of the search. An empty sketch restricts nothing.

    name         its name in messages
    chunks       pieces that each chunk of the collective is cut into
    size         bytes for which the schedule should be fast; None: the size given to the engine
    connections  `few`: of equally fast routings the one over the fewest pairs of ranks in a box; `many`: the most
    detour       paths to a single rank may take so much longer than the fastest one, as a share of it
    symmetry     rotations: (offset, group) turns every group of so many ranks by the offset; None: the free part of
                 the symmetry that the topology declares
    only, avoid  pairs of ranks that may talk directly, and pairs that may not; empty `only`: all
    """

    name: str
    chunks: int = 1
    size: int | None = None
    connections: Connections = "any"
    detour: float = 0.0
    symmetry: tuple[tuple[int, int], ...] | None = None
    only: frozenset[tuple[int, int]] = field(default=frozenset())
    avoid: frozenset[tuple[int, int]] = field(default=frozenset())
    between: Between | None = None


def default_sketch(topology: Topology, members: tuple[int, ...]) -> Sketch:
    """Boxes as the NICs show them, each rank sending to the ranks at the same position in other boxes.

    The routes between such ranks cross the NICs nearest to both, so rails and shared NICs are used without rules.
    """
    name = f"the default for {topology.name}"
    try:
        hosts = hosts_of(topology)
    except TopologyError:  # A NIC between two boxes: boxes cannot be told apart.
        return Sketch(name)
    ranks = [rank for host in hosts for rank in host.ranks]
    size = len(hosts[0].ranks)
    alike = all(len(host.ranks) == size for host in hosts) and ranks == list(members)
    return Sketch(name, between=Between(size) if alike and size > 1 and len(hosts) > 1 else None)

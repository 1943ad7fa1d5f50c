"""Trees repaired or grown by a local search, for links with limited capacity: near the bound, and fast at any scale.

    existing trees, some links lost      ──▶ branches are reattached where links have room
    no trees, and too many ranks for     ──▶ trees grown one after another, then repaired where
    an exact packing                         links are overloaded              (csrc/solve/trees/regraft.hpp)

Trees that sum and trees that spread share the links; the division of a link between both follows from where room is
left. A link may carry what it can in the time of the bound, plus some slack, as little as suffices. Loads are counted
exactly afterwards, so the gap is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.deadline import Deadline
from syntony.synth.bounds.demand import block_weights
from syntony.synth.engines.forest.trees import Trees, common_weights, spread
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.reversal import summed, summed_and_spread
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

SLACKS = (0.01, 0.04, 0.1, 0.3)
"""How far above the bound links may be loaded; tried one after another until the trees fit."""
LEAST_SLACK = 0.002
"""Tried before, for existing trees: few are moved, so most fit as well as they did."""
OWN_SLACK = 0.0005
"""The same where they took no less time before: they need next to no room."""
FINE = 256
"""Trees are cut until the slowest link can carry at least this many."""
ROUNDS = 60
"""Rounds of moving load away from overloaded links, per attempt."""
LEAST_TREES = 64
"""The least number of trees to grow: with few roots, several each."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Standing:
    """T trees over n ranks, n - 1 edges each; or only their roots, if they are to be grown.

    root, weight   (T,)
    backwards      (T,)  whether they sum: edges lead away from the root, links towards it
    tail, head     (T * (n - 1),)  of every edge, tree by tree
    offset, link   edge e takes link[offset[e]:offset[e + 1]] of the topology; -1: lost
    """

    root: Integers
    weight: Integers
    backwards: NDArray[np.bool_]
    tail: Integers
    head: Integers
    offset: Integers
    link: Integers

    @staticmethod
    def joined(parts: Sequence[Standing]) -> Standing:
        """All trees of the parts."""
        columns = ("root", "weight", "backwards", "tail", "head", "link")
        root, weight, backwards, tail, head, link = (
            np.concatenate([getattr(part, name) for part in parts]) for name in columns
        )
        lengths = np.concatenate([np.diff(part.offset) for part in parts])
        return Standing(root, weight, backwards, tail, head, np.concatenate(([0], np.cumsum(lengths))), link)

    @staticmethod
    def bare(collective: Collective) -> Standing:
        """Only the roots of the trees that the collective needs, alternating those that sum and those that spread."""
        ranks, owed = collective.ranks, block_weights(collective).reshape(-1)
        roots = np.full(1, collective.root) if collective.rooted else np.arange(ranks)
        owed = owed[:1] if collective.rooted else np.ones(ranks, np.int64) if collective.kind == "all_reduce" else owed
        roots, owed = roots[owed > 0], owed[owed > 0]
        times = -(-LEAST_TREES // len(roots))
        ways = np.asarray([way for way in (True, False) if _goes(collective, way)])
        count = times * len(roots)
        backwards = np.tile(ways, count)
        root, weight = (np.repeat(np.tile(column, times), len(ways)) for column in (roots, owed))
        none = np.zeros(0, np.int64)
        return Standing(root.astype(np.int64), weight.astype(np.int64), backwards, none, none, np.zeros(1, int), none)


def _goes(collective: Collective, backwards: bool) -> bool:
    """Whether the collective needs trees that sum (backwards), or that spread."""
    return collective.combining if backwards else collective.kind not in ("reduce_scatter", "reduce")


def grown(topology: Topology, collective: Collective, time: Fraction, deadline: Deadline) -> Schedule:
    """A schedule along trees grown for `time` seconds per byte, or little more. It has no bounds yet."""
    schedule = best_grafted(topology, collective, Standing.bare(collective), time, deadline)
    assert schedule is not None, "what is grown has no circle"
    return schedule


def best_grafted(
    topology: Topology,
    collective: Collective,
    standing: Standing,
    time: Fraction,
    deadline: Deadline,
    least: float = LEAST_SLACK,
) -> Schedule | None:
    """The best schedule over several slacks, for existing trees from `least` on; at least one attempt. None if a tree
    has a cycle."""
    best: tuple[Fraction, Schedule] | None = None
    for slack in SLACKS if not len(standing.head) else (least, *SLACKS):
        if best and not deadline.left():
            break
        trees = _regrafted(topology, collective, standing, time, slack)
        if trees is None:
            return None
        schedule = _schedule(topology, collective, *trees)
        took = seconds_per_byte(schedule)
        if best is None or took < best[0]:
            best = took, schedule
        if float(took / time) <= 1 + 1.5 * slack:
            break
    assert best is not None
    return best[1]


def _schedule(topology: Topology, collective: Collective, up: Trees, down: Trees) -> Schedule:
    """The schedule along trees that sum, trees that spread, or the former and then the latter."""
    if collective.kind == "all_reduce":
        gather = Collective.make("all_gather", members=collective.members)
        up, down = common_weights(up, down)
        whole = replace(collective, chunks=ChunkTable(np.zeros_like(down.weight), down.weight))
        return summed_and_spread(spread(topology.reversed(), gather, up), spread(topology, gather, down), whole)
    if collective.combining:
        return summed(spread(topology.reversed(), collective.dual(), up), topology)
    return spread(topology, collective, down)


def _regrafted(
    topology: Topology, collective: Collective, standing: Standing, time: Fraction, slack: float
) -> tuple[Trees, Trees] | None:
    """The trees that sum, and those that spread; links are loaded for `time` seconds per byte, or `slack` more.

    None if a tree has a cycle.
    """
    network = Network(topology, collective)
    total = int(standing.weight.sum()) // (2 if collective.kind == "all_reduce" else 1)
    ids = np.asarray([link.id for link in network.links], np.int64)
    _, first, speed = np.unique(topology.speeds[ids], return_index=True, return_inverse=True)
    carried = [time * network.links[link].bandwidth * total for link in first]  # by links of each speed
    fine = max(1, min(ceil(FINE / min(carried)), MOST_WEIGHT // total))
    room = np.asarray([int(trees * fine) for trees in carried])[speed]
    most = np.asarray([int(float(trees * fine) * (1 + slack)) for trees in carried])[speed]

    relays = [node.id for node in topology.nodes if node.kind != "rank"]
    number = np.full(len(topology.nodes), -1, np.int32)
    number[[*collective.members, *relays]] = np.arange(collective.ranks + len(relays))
    place = np.full(len(topology.links) + 1, -1, np.int64)
    place[ids] = np.arange(len(ids))
    tails, heads = (number[ends[ids]] for ends in topology.ends)
    found = _solve.regraft(
        collective.ranks + len(relays),
        collective.ranks,
        tails,
        heads,
        room,
        np.maximum(most, room),
        standing.root,
        standing.weight * fine,
        standing.backwards.astype(np.uint8),
        standing.tail.astype(np.int64),
        standing.head.astype(np.int64),
        standing.offset,
        place[standing.link],
        ROUNDS,
    )
    shape = (len(found.root), collective.ranks - 1)
    tail, head, route = (column.astype(np.int64) for column in (found.tail, found.head, found.route))
    if len(head) != shape[0] * shape[1]:
        return None
    tail, head, route = (column.reshape(shape) for column in (tail, head, route))
    link = found.route_link.astype(np.int32)
    backwards = tails[link[found.route_offset[route[:, 0]]]] != tail[:, 0]

    def part(chosen: NDArray[np.bool_]) -> Trees:
        order = np.flatnonzero(chosen)
        order = order[np.argsort(found.root[order], kind="stable")]
        weight = found.multiplicity[order]
        return Trees(
            found.root.astype(np.int64)[order],
            weight // gcd(*weight.tolist()) if len(weight) else weight,
            tail[order],
            head[order],
            route[order],
            found.route_offset,
            np.append(ids, -1)[link],
        )

    return part(backwards), part(~backwards)

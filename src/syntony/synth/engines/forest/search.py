"""Engine `forest`: spanning trees that fill the network exactly, and so meet the throughput bound.

The bound of all_gather is a cut: some set of nodes must send w over links of bandwidth B, so every unit takes at least
t = w / B seconds. Give every rank k trees per unit, each of weight 1/k, and every link capacity for k * t * b of them,
with the least k that makes all these numbers whole. Then no cut is violated, so the trees fit (Edmonds 1973):

        rank 0's block, k = 2                      trees of all roots together: link 0 -> 1 carries exactly
          chunk 0:  0 ──▶ 1 ──▶ 2                  k * t * b chunks, and so does every link of the tightest cut
          chunk 1:  0 ──▶ 2 ──▶ 1

Zhao et al., ForestColl (NSDI'26), sections 4 and 5; the packing itself is forest/packing.py. Equal trees are one chunk
of that weight. The steps are the trees' depth, or ascend with it; a large message streams through them in slices.

From 512 ranks on, only the trees of one root per orbit of the declared symmetry are packed, if that is within 1 % of
the bound (forest/orbits.py); the Schedule then lists these trees and the generators.

Where that is not so, from 192 ranks on, a local search grows the trees (forest/grafting.py); up to 512 ranks they are
packed exactly all the same, if that leaves a gap above 1 %.

`forest:K` gives every root K equal trees, at the best rate that is possible with K (forest/fixed.py).

Of trees that load links alike, those are taken that stream best in a simulation: of all ranks, in several orders of
nodes and links (forest/paced.py); of one root, for a broadcast, of several shapes (forest/one_root.py). reduce_scatter
and reduce are all_gather and broadcast in reverse (symmetry/reversal.py).

all_reduce sums along one set of trees and copies along another. If dividing the links between both by a linear program
is faster than reduce_scatter followed by all_gather (as on meshes: bounds/references.py), the roots get the shares of
that program, rounded to 1 part in 1,000. gather, scatter and all_to_all have no trees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import Deadline
from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.references import all_reduce_composed, best_trees
from syntony.synth.bounds.throughput import bounds_of, throughput
from syntony.synth.engines.engine import MEETS_BOUND, Budget, EngineError, bounded
from syntony.synth.engines.forest.fixed import MOST, fixed_rooms
from syntony.synth.engines.forest.grafting import grown
from syntony.synth.engines.forest.one_root import of_one_root
from syntony.synth.engines.forest.orbits import trees_by_orbits
from syntony.synth.engines.forest.paced import paced
from syntony.synth.engines.forest.packing import balanced, filled, packed
from syntony.synth.engines.forest.trees import ENGINE, Trees, common_weights, spread
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.topology import Topology

FOLDED = 512
"""From this many ranks on, the trees of one root per orbit of the declared symmetry are packed."""
GROWN = 192
"""From this many ranks on, a local search grows the trees of all ranks first; they are packed exactly only if that
leaves a gap."""
GRAIN = 1 << 16
"""The number of trees to which the linear program's solution is rounded."""
LOSS = 1e-3
"""The part that is taken off the links before, to make up for rounding."""

_GOOD, _WHOLE = Fraction(1, 100), 2048
"""Up to this many ranks, all roots' trees are packed after all if orbits leave more than this gap."""

Integers = NDArray[np.signedinteger]


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the module docstring. Raises EngineError for collectives without trees or an unbalanced relay.

    The schedule is for sizes at which bandwidth matters; of several such, the fastest at `size`. `argument`: how many
    trees per root.
    """
    fixed = _trees_asked(argument)
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine forest takes no --steps or --rounds; use --engine sccl")
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine forest packs trees, which {collective.kind} does not need; use --engine flow")
    latency(Network(topology, collective))  # raises if ranks are cut off
    if collective.ranks >= FOLDED and not collective.rooted and fixed is None:
        folded = _by_orbits(topology, collective)
        if folded is not None:
            return _proven(folded)
    easy: Schedule | None = None
    if collective.ranks >= GROWN and not collective.rooted and fixed is None and _alone(topology, collective):
        easy = _grown(topology, collective, budget)
        if collective.ranks >= FOLDED or (gap_of(easy) or 0) <= _GOOD:
            return _proven(easy)
    try:
        exact = _exact(topology, collective, size, fixed, budget)
    except EngineError:
        if easy is None:
            raise
        return easy
    return exact if easy is None or seconds_per_byte(exact) <= seconds_per_byte(easy) else easy


def _exact(topology: Topology, collective: Collective, size: int, fixed: int | None, budget: Budget) -> Schedule:
    if collective.kind == "all_reduce":
        summing = _all_reduce(topology, collective, fixed, budget)

        def with_bounds(schedule: Schedule) -> Schedule:
            return _proven(replace(schedule, bounds=bounds_of(topology, schedule.collective, budget.for_bounds())))

        def tell_sums(schedule: Schedule) -> None:
            if budget.better is not None:
                budget.better(with_bounds(schedule))

        return with_bounds(paced(summing, size, tell_sums, budget))
    way, copied = (topology.reversed(), collective.dual()) if collective.combining else (topology, collective)

    bounds = bounds_of(topology, collective, budget.for_bounds())

    def along(trees: Trees) -> Schedule:
        schedule = spread(way, copied, trees)
        return _proven(bounded(summed(schedule, topology) if collective.combining else schedule, ENGINE, bounds))

    def tell(trees: Trees) -> None:
        if budget.better is not None:
            budget.better(along(trees))

    if collective.rooted:
        return along(pack(way, copied, fixed, tell))
    heard = budget.better or (lambda _: None)
    return paced(lambda order: along(pack(way, copied, fixed, order=order)), size, heard, budget)


def _alone(topology: Topology, collective: Collective) -> bool:
    """Whether no declared symmetry maps every rank to another."""
    generators = fitting_generators(Network(topology, collective))
    return FreeGroup.within(len(topology.nodes), collective.members, generators).order == 1


def _grown(topology: Topology, collective: Collective, budget: Budget) -> Schedule:
    """The schedule along trees that a local search grows: near the bound, in seconds where exact trees take hours."""
    bounds = bounds_of(topology, collective, budget.for_bounds())
    schedule = grown(topology, collective, bounds.throughput.seconds_per_byte, budget)
    latest = replace(bounds, latency=latency(Network(topology, schedule.collective)))
    return replace(schedule, engine=ENGINE, bounds=latest)


def _proven(schedule: Schedule) -> Schedule:
    """The schedule, with the proof that it meets the bound, if it does."""
    return replace(schedule, proof=MEETS_BOUND if gap_of(schedule) == 0 else "")


def _trees_asked(argument: str) -> int | None:
    """The number of trees per root in the engine's argument. Raises EngineError."""
    if not argument:
        return None
    if not argument.isdecimal() or not 1 <= int(argument) <= MOST:
        raise EngineError(
            f"engine forest takes how many trees per root, 1 to {MOST}, as in forest:2, but not '{argument}'"
        )
    return int(argument)


def _by_orbits(topology: Topology, collective: Collective) -> Schedule | None:
    """The schedule with the trees of one root per orbit; None if the trees of all roots may be better."""
    gather = collective
    if collective.combining:
        gather = in_owned_chunks(collective)[1] if collective.kind == "all_reduce" else collective.dual()
    try:
        up = down = None
        if collective.combining:
            up = trees_by_orbits(Network(topology.reversed(), gather))
        if collective.kind != "reduce_scatter":
            down = trees_by_orbits(Network(topology, gather), multiple=_trees(up))
        if up is not None and _trees(up) != _trees(down or up):
            up = trees_by_orbits(Network(topology.reversed(), gather), multiple=_trees(down))
    except EngineError:
        return None
    if collective.kind == "all_reduce":
        if up is None or down is None or _trees(up) != _trees(down):
            return None
        weight = down.collective.chunks.weight
        schedule = summed_and_spread(up, down, replace(collective, chunks=ChunkTable(np.zeros_like(weight), weight)))
    elif up is not None:
        schedule = summed(up, topology)
    elif down is not None:
        schedule = down
    else:
        return None
    schedule = replace(schedule, engine=ENGINE, bounds=bounds_of(topology, schedule.collective))
    gap = gap_of(schedule)
    return None if gap and gap > _GOOD and collective.ranks <= _WHOLE else schedule


def _trees(folded: Schedule | None) -> int:
    """The number of trees of every root."""
    return 1 if folded is None else len(folded.collective.chunks) // folded.collective.ranks


def pack(
    topology: Topology,
    collective: Collective,
    fixed: int | None = None,
    tell: Callable[[Trees], None] = lambda _: None,
    order: int = 0,
) -> Trees:
    """Trees of an all_gather or broadcast that meet its throughput bound. Raises EngineError.

    fixed   as near to it as `fixed` equal trees per root can be; if weights differ, that many per unit of weight
    tell    called with the best trees so far of a broadcast, where others are still to be found
    order   of nodes and links, for an all_gather (packing.packed)
    """
    network = Network(topology, collective)
    owed = np.bincount(collective.chunks.block, collective.chunks.weight).astype(np.int64)
    if collective.kind == "broadcast":
        owed = np.where(np.arange(collective.ranks) == collective.root, owed[0], 0)
    bound = throughput(network)
    per_unit = bound.seconds_per_byte / collective.unit
    if fixed is not None:
        trees = owed // np.gcd.reduce(owed) * fixed
        least = per_unit * int(trees.sum()) / int(owed.sum())
        return packed(network, trees.tolist(), fixed_rooms(network, trees.tolist(), least), order)
    if collective.kind == "broadcast":
        return of_one_root(network, bound, tell)
    return filled(network, owed, bound, order=order)


def _all_reduce(
    topology: Topology, collective: Collective, fixed: int | None, budget: Budget
) -> Callable[[int], Schedule]:
    """By order of nodes and links: the schedule along trees for sums and trees for copies."""
    _, gather = in_owned_chunks(collective)
    division = None if fixed else _divided(topology, gather, budget)

    def halves(order: int) -> Iterator[Trees]:
        if division is None:
            for way in (topology.reversed(), topology):
                yield pack(way, gather, fixed, order=order)
        else:
            for wires, room in zip((topology.reversed(), topology), division.rooms, strict=True):
                yield packed(Network(wires, gather), division.trees, room, order)

    @cache
    def along(order: int) -> Schedule:
        up, down = common_weights(*halves(order))
        copies = spread(topology, gather, down)
        whole = replace(collective, chunks=ChunkTable(np.zeros_like(down.weight), down.weight))
        return summed_and_spread(spread(topology.reversed(), gather, up), copies, whole)

    if division is not None:
        try:
            along(0)
        except EngineError:
            division = None
    return along


@dataclass(frozen=True)
class _Division:
    """Links divided between sums and copies: trees by root, and how many of them each link takes, for either."""

    trees: list[int]
    rooms: list[list[int]]


def _divided(topology: Topology, gather: Collective, budget: Budget) -> _Division | None:
    """The links, divided as the linear program says; None if that is not faster."""
    network = Network(topology, gather)
    if gather.ranks == 1:
        return None
    best = best_trees(network, least=2 * LOSS, branching=False, deadline=Deadline(budget.left() / 2))
    composed = float(1 / all_reduce_composed(network, budget))
    if best is None or best.rate <= composed * (1 + LOSS):
        return None
    share = np.asarray([best.shares[member] for member in gather.members]) / best.rate
    trees = np.floor((1 - LOSS) * GRAIN * share).astype(np.int64)
    if not trees.all():
        return None
    total: defaultdict[tuple[int, int], float] = defaultdict(float)
    for link in network.links:
        total[link.src, link.dst] += float(link.bandwidth)
    rooms = []
    for way in (best.up, best.down):
        room = [
            int(GRAIN * way[ends] / best.rate * float(link.bandwidth) / total[ends])
            for link in network.links
            for ends in [(link.src, link.dst)]
        ]
        rooms.append(balanced(network, room))
    return _Division(trees.tolist(), rooms)

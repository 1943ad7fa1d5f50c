"""Exact packing of trees into what the throughput bound leaves to the links.

A bound of t seconds leaves room for t * b of a unit of weight on a link of bandwidth b. With k trees per unit, so that
all k * t * b are whole, no cut is violated, and the trees fit (csrc/solve/trees/forest.hpp). Mostly it is enough that
those of the tightest cut are whole, which saves trees.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.forest.narrowed import narrowed
from syntony.synth.engines.forest.trees import MOST_COUNTED, Trees
from syntony.synth.model.bound import Cut, Throughput
from syntony.synth.model.collective import MOST_WEIGHT
from syntony.synth.model.network import Network

FEWER = 1 << 24
"""The number of trees, about, where a root would need more than MOST_WEIGHT: measured rates have large common
denominators."""
FEWER_LOSS = Fraction(1, 1 << 12)
"""The part that is taken off the links then, to make up for rounding."""

Integers = NDArray[np.signedinteger]


def filled(
    network: Network, owed: Integers, bound: Throughput, narrow: bool = False, times: int = 1, order: int = 0
) -> Trees:
    """As many trees per unit of weight as make what the bound leaves to each link a whole number of them, or `times`
    as many; or nearly so, where these would be too many.

    `narrow`: on as little of it as they need. `order`: as for `packed`. Raises EngineError.
    """
    per_unit = bound.seconds_per_byte / network.collective.unit
    room = {link.id: per_unit * link.bandwidth for link in network.links}
    tight = bound.witness.links if isinstance(bound.witness, Cut) else ()

    def filling(links: tuple[int, ...]) -> Trees:
        count = times * lcm(*(room[link].denominator for link in links))
        trees = [count * weight for weight in owed.tolist()]
        rooms = [int(count * share) for share in room.values()]
        countless = max(trees) > MOST_WEIGHT
        if countless:
            per_weight = Fraction(FEWER, int(owed.max()))
            trees = [int((1 - FEWER_LOSS) * per_weight * weight) for weight in owed.tolist()]
            rooms = balanced(network, [int(per_weight * share) for share in room.values()])
        try:
            return packed(network, trees, narrowed(network, trees, rooms) if narrow else rooms, order)
        except EngineError as error:
            raise (_uncounted(network) if countless else error) from None

    with suppress(EngineError):  # Only the tightest cut must be filled whole: that mostly does, and saves trees.
        return filling(tight)
    return filling(tuple(room))


def _uncounted(network: Network) -> EngineError:
    what = f"{network.collective.kind} on {network.topology.name}"
    return EngineError(f"{what} needs more trees than can be counted; use --engine blink")


def packed(network: Network, trees: list[int], room: list[int], order: int = 0) -> Trees:
    """`trees[r]` trees from rank r, `room[i]` of all of them on the network's link i. Raises EngineError.

    `order`: in which nodes and links are packed: 0 as in the network, else drawn with this seed. Other trees are found.
    """
    topology, collective = network.topology, network.collective
    if max(sum(trees), sum(room)) >= MOST_COUNTED:
        raise _uncounted(network)
    relays = [node.id for node in topology.nodes if node.kind != "rank"]
    luck = np.random.default_rng(order)
    ranks, others, links = (
        luck.permutation(count) if order else np.arange(count)
        for count in (collective.ranks, len(relays), len(network.links))
    )
    nodes = [*np.asarray(collective.members)[ranks], *np.asarray(relays, np.int64)[others]]
    number = {int(node): i for i, node in enumerate(nodes)}
    ends = np.asarray([(number[link.src], number[link.dst]) for link in network.links], np.int32).reshape(-1, 2)[links]
    try:
        forest = _solve.pack_forest(
            len(number),
            np.ascontiguousarray(ends[:, 0]),
            np.ascontiguousarray(ends[:, 1]),
            np.asarray(room, np.int64)[links],
            np.asarray(trees, np.int64)[ranks],
        )
    except ValueError as error:
        raise EngineError(f"no forest for {collective.kind} on {topology.name}: {error}") from None
    root = ranks[forest.root]
    by_root = np.argsort(root, kind="stable")
    shape = (len(by_root), collective.ranks - 1)
    ids = np.asarray([link.id for link in network.links], np.int64)[links]
    return Trees(
        root[by_root],
        forest.multiplicity[by_root],
        ranks[forest.tail].reshape(shape)[by_root],
        ranks[forest.head].reshape(shape)[by_root],
        forest.route.astype(np.int64).reshape(shape)[by_root],
        forest.route_offset,
        ids[forest.route_link],
    )


def balanced(network: Network, room: list[int]) -> list[int]:
    """The largest part of the room that lets every relay take in what it sends out; whole numbers rarely balance.

    The widest links lose what is too much, down to the same room for all that lose any.
    """
    room = list(room)
    relays: dict[int, tuple[list[int], list[int]]] = {
        node.id: ([], []) for node in network.topology.nodes if node.kind != "rank"
    }
    for number, link in enumerate(network.links):
        for node, side in ((link.src, 1), (link.dst, 0)):
            if node in relays:
                relays[node][side].append(number)
    changed = True
    while changed:
        changed = False
        for sides in relays.values():
            into, out = (sum(room[link] for link in side) for side in sides)
            changed |= into != out
            left, wide = min(into, out), sides[into < out]
            for place, narrowest in enumerate(sorted(wide, key=room.__getitem__)):
                room[narrowest] = min(room[narrowest], left // (len(wide) - place))
                left -= room[narrowest]
    return room

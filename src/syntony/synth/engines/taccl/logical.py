"""The logical network: which ranks may send to which directly, given a sketch, and the load that this puts on links.

    edge 0 ──▶ 1        routes by planes 0, 1, 2       chunks are cut into 3 stripes, one per route:
                                                       each link of these routes carries a third

An edge is an ordered pair of ranks with the fastest routes for a chunk (model/routes.py; all that are equally fast): of
two wires, small chunks take the one of less latency, large ones the wider one. Chunks are cut into as many stripes as
the widest edge has routes; stripe i takes route i mod their number. So an edge puts a fixed share of the chunk on each
link, and switches, shared NICs and rails need no rules of their own: their links are limited like all others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.taccl.sketch import Between, Relays, Sketch
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.topologies.topology import Permutation

Integers = NDArray[np.signedinteger]


class SketchError(EngineError):
    """A sketch that does not fit the network or the collective."""


@dataclass(frozen=True)
class Edge:
    """From `src` to `dst`, ranks of the collective. `share[l]`: the part of a chunk that link l carries."""

    src: int
    dst: int
    routes: tuple[Route, ...]
    share: dict[int, Fraction]

    @property
    def alpha(self) -> float:
        """Seconds, on the slowest of its routes."""
        return max(route.alpha for route in self.routes)


@dataclass(frozen=True, eq=False)
class Logical:
    """Edges by (src, dst), the stripes of a chunk, the box of every rank, and the symmetry that routes must have.

    group  on ranks; free
    """

    network: Network
    sketch: Sketch
    edges: tuple[Edge, ...]
    stripes: int
    box: Integers
    group: FreeGroup

    @staticmethod
    def of(network: Network, sketch: Sketch, size: int) -> Logical:
        """The network as the sketch leaves it, for `size` bytes. Raises SketchError."""
        ranks, between = network.collective.ranks, sketch.between
        box = _boxes(ranks, sketch)
        largest = float(network.collective.bytes_of_chunks(size).max(initial=0)) / sketch.chunks
        pairs = {
            pair: _fastest(routes, largest) for pair, routes in _by_pair(network, box, between is not None).items()
        }
        _check_pairs(sketch, set(pairs), ranks)
        allowed = {pair for pair in pairs if pair not in sketch.avoid and (not sketch.only or pair in sketch.only)}
        if between is not None:
            allowed -= {pair for pair in allowed if box[pair[0]] != box[pair[1]]} - _relayed(
                sketch, between, ranks, allowed
            )
        stripes = max((len(pairs[pair]) for pair in allowed), default=1)
        edges = tuple(_edge(pair, pairs[pair], stripes) for pair in sorted(allowed))
        group = _group(network, sketch, {(edge.src, edge.dst) for edge in edges})
        return Logical(network, sketch, edges, stripes, box, group)

    @cached_property
    def at(self) -> Integers:
        """(ranks, ranks): the edge from one to the other; -1 where there is none."""
        ranks = self.network.collective.ranks
        table = np.full((ranks, ranks), -1)
        for number, edge in enumerate(self.edges):
            table[edge.src, edge.dst] = number
        return table

    @cached_property
    def ends(self) -> tuple[Integers, Integers]:
        """Sources and destinations of all edges."""
        return (
            np.asarray([edge.src for edge in self.edges], np.int64),
            np.asarray([edge.dst for edge in self.edges], np.int64),
        )

    def moved(self, ranks: Integers) -> Integers:
        """Where edges go when rank r goes to ranks[r]."""
        return self.at[ranks[self.ends[0]], ranks[self.ends[1]]]

    def usable(self, home: int) -> NDArray[np.bool_]:
        """(edges,): which may carry the chunks that start at rank `home`."""
        src, dst = self.ends
        usable = dst != home
        between = self.sketch.between
        if between is not None and between.carries:
            position = home % between.box
            senders = [sender for sender, carried in between.carries if position in carried]
            leaves, returns = self.box[src] == self.box[home], self.box[dst] == self.box[home]
            usable &= ~(leaves & ~returns) | np.isin(src % between.box, senders)
            usable &= leaves | ~returns
        return np.asarray(usable)


def _boxes(ranks: int, sketch: Sketch) -> Integers:
    if sketch.between is None:
        return np.zeros(ranks, np.int64)
    if ranks % sketch.between.box:
        raise SketchError(
            f"{sketch.name}: between.box is {sketch.between.box}, which does not divide the {ranks} ranks"
        )
    return np.arange(ranks) // sketch.between.box


def _by_pair(network: Network, box: Integers, boxed: bool) -> dict[tuple[int, int], list[Route]]:
    """All routes. Inside a box none through a NIC, if the ranks of the box are connected without."""
    nodes, links = network.topology.nodes, network.topology.links
    pairs: dict[tuple[int, int], list[Route]] = {}
    outside: dict[tuple[int, int], list[Route]] = {}
    for route in routes_of(network).routes:
        by_nic = any(nodes[links[link].dst].kind == "nic" for link in route.links)
        inside = boxed and box[route.src] == box[route.dst]
        (outside if inside and by_nic else pairs).setdefault((route.src, route.dst), []).append(route)
    ranks = len(box)
    joined = np.zeros((ranks, ranks), bool)
    for src, dst in pairs:
        joined[src, dst] = box[src] == box[dst]
    number, _ = connected_components(joined, connection="strong")
    if number > int(box.max()) + 1:
        for pair, routes in outside.items():
            pairs.setdefault(pair, []).extend(routes)
    return pairs


def _fastest(routes: list[Route], chunk: float) -> list[Route]:
    """Those like the one that takes the least time for so many bytes."""
    best = min(routes, key=lambda route: (route.alpha + chunk / route.bandwidth, route.alpha))
    return [route for route in routes if (route.bandwidth, route.alpha) == (best.bandwidth, best.alpha)]


def _check_pairs(sketch: Sketch, pairs: set[tuple[int, int]], ranks: int) -> None:
    for key, named in (("only", sketch.only), ("without", sketch.avoid)):
        for src, dst in sorted(named):
            if max(src, dst) >= ranks:
                raise SketchError(f"{sketch.name}: links.{key} names {src} -> {dst}; ranks are 0..{ranks - 1}")
            if (src, dst) not in pairs:
                raise SketchError(f"{sketch.name}: links.{key} names {src} -> {dst}, and no route joins these ranks")


def _relayed(sketch: Sketch, between: Between, ranks: int, allowed: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The pairs across boxes that the relays make. Raises SketchError for one that has no route."""
    size = between.box
    explicit = isinstance(between.relays, tuple)
    relays: Relays
    match between.relays:
        case "same":
            relays = tuple((position, (position,)) for position in range(size))
        case "all":
            relays = tuple((position, tuple(range(size))) for position in range(size))
        case given:
            relays = given
    for what, table in (("relays", relays), ("carries", between.carries)):
        for sender, others in table:
            for position in (sender, *others):
                if not 0 <= position < size:
                    raise SketchError(
                        f"{sketch.name}: between.{what} names position {position}; a box has positions 0..{size - 1}"
                    )
    made = set()
    for home in range(0, ranks, size):
        for away in range(0, ranks, size):
            if home == away:
                continue
            for sender, receivers in relays:
                for receiver in receivers:
                    pair = (home + sender, away + receiver)
                    if pair in allowed:
                        made.add(pair)
                    elif explicit:
                        raise SketchError(
                            f"{sketch.name}: between.relays sends from rank {pair[0]} to {pair[1]}, "
                            "and no route joins these ranks"
                        )
    return made


def _edge(pair: tuple[int, int], routes: list[Route], stripes: int) -> Edge:
    times = Counter(link for stripe in range(stripes) for link in routes[stripe % len(routes)].links)
    return Edge(*pair, tuple(routes), {link: Fraction(count, stripes) for link, count in times.items()})


def _group(network: Network, sketch: Sketch, pairs: set[tuple[int, int]]) -> FreeGroup:
    ranks, every = network.collective.ranks, tuple(range(network.collective.ranks))
    if sketch.symmetry is None:
        members = network.collective.members
        position = {member: rank for rank, member in enumerate(members)}
        moves = {
            tuple(position[generator[member]] for member in members): None for generator in fitting_generators(network)
        }
        return FreeGroup.within(ranks, every, [move for move in moves if _keeps(move, pairs)])
    rotations = []
    for offset, size in sketch.symmetry:
        if size < 1 or ranks % size or not 0 < offset < size:
            raise SketchError(
                f"{sketch.name}: symmetry has [{offset}, {size}]; the group must divide the {ranks} ranks, and the "
                "offset be less than it"
            )
        move = tuple(rank // size * size + (rank + offset) % size for rank in every)
        lost = next((pair for pair in sorted(pairs) if (move[pair[0]], move[pair[1]]) not in pairs), None)
        if lost is not None:
            raise SketchError(
                f"{sketch.name}: symmetry [{offset}, {size}] moves {lost[0]} -> {lost[1]} to {move[lost[0]]} -> "
                f"{move[lost[1]]}, which the sketch does not have"
            )
        rotations.append(move)
    if network.collective.rooted and rotations:
        raise SketchError(
            f"{sketch.name}: symmetry moves the root, and {network.collective.kind} has one; leave it empty"
        )
    group = FreeGroup.of(ranks, every, rotations)
    if group is None:
        raise SketchError(f"{sketch.name}: symmetry leaves some rank in its place while it moves others")
    return group


def _keeps(move: Permutation, pairs: set[tuple[int, int]]) -> bool:
    return all((move[src], move[dst]) in pairs for src, dst in pairs)

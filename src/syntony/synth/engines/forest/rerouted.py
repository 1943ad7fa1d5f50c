"""Trees of a broadcast on other routes between the same ranks, so that no link is too full.

A NIC with ports in two planes of switches, which never meet, carries an edge by one port, and the receiver's NIC takes
it in by the same. Half of the edges at every rank must take either plane. Prices alone hardly find that; pairs do:

    edges of a sender in pairs, edges to a receiver in pairs      1 ══▶ 5 ── 2 ══▶ 5 ── 2 ══▶ 6 ..
    along the chains of pairs, edges take turns                     A         B          A

What links further on cannot carry is moved by prices then (csrc/solve/graph/balanced_paths.hpp).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.rows import pieces
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.engines.forest.trees import ROUNDING, Trees, pairs_of
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_between

WORK = 1 << 26
"""For balanced routes: links that searches look at, from all ranks in all rounds; about a second."""
MOST_ROUTES = 256
"""Between two ranks."""
PARTS = 64
"""In which the routes between two ranks are dealt."""
MOST_TIMES = 8
"""Into at most so many trees a tree is cut to fit on slow links."""

Integers = NDArray[np.signedinteger]


def rerouted(network: Network, trees: Trees, least: float) -> Trees:
    """The trees on routes such that links are no fuller than in `least` seconds per byte, or nearly so; cut, where a
    single edge is too much for a link."""

    def seconds(trees: Trees) -> float:
        return trees.seconds_per_byte(network.topology)

    best, times = trees, 1
    while seconds(best) > (1 + ROUNDING) * least:
        dealt = _dealt(network, trees, times)
        best = min(best, dealt, _balanced(network, dealt, least), key=seconds)
        slowest = min(float(network.topology.links[link].bandwidth) for link in set(dealt.link.tolist()))
        single = int(trees.weight.max()) / int(trees.weight.sum()) / slowest / least
        if times > 1 or single <= 1 + ROUNDING:
            break
        times = min(MOST_TIMES, ceil(single * (1 - ROUNDING)))
    return best


def _dealt(network: Network, trees: Trees, times: int) -> Trees:
    """The trees cut into `times` as many, the edges of every rank with several routes dealt evenly over them: the
    routes by one plane of switches come before those by the next."""
    trees = trees.cut(np.repeat(np.arange(len(trees.root)), times), np.repeat(trees.weight, times))
    pairs, pair = pairs_of(trees.src, trees.dst, network.collective.ranks)
    routes = routes_between(network, *pairs, MOST_ROUTES)
    count = np.diff(routes.first)[pair]
    several = count > 1
    part = even_parts(trees.src.reshape(-1)[several], trees.dst.reshape(-1)[several])
    route = routes.first[pair]
    route[several] += (part * count[several]).astype(np.int64)
    return replace(trees, route=route.reshape(trees.src.shape), offset=routes.offset, link=routes.link)


def even_parts(src: Integers, dst: Integers) -> NDArray[np.float64]:
    """For every edge a multiple of 1 / PARTS below 1, such that half of those of each source are below 1/2, and half of
    those to each destination, one more or less; half of these below 1/4, and so on.

    Edges of a source are paired, and those to a destination; along the chains of pairs, edges take turns (Gabow, "Using
    Euler partitions to edge color bipartite multigraphs", 1976).
    """
    part = np.zeros(len(src), np.int64)
    for _ in range(PARTS.bit_length() - 1):
        partner = [_paired(np.unique(np.stack([part, end]), axis=1, return_inverse=True)[1]) for end in (src, dst)]
        part = 2 * part + _turns(*(ends.tolist() for ends in partner))
    return part / PARTS


def _paired(group: Integers) -> Integers:
    """Another one of the same group, each other's; -1 for the last of an odd number."""
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    first = np.flatnonzero((place[:-1] % 2 == 0) & (place[1:] == place[:-1] + 1))
    partner = np.full(len(order), -1)
    partner[order[first]], partner[order[first + 1]] = order[first + 1], order[first]
    return partner


def _turns(one: list[int], other: list[int]) -> Integers:
    """0 or 1 for each, never the same for partners; both lists say whose partner each is."""
    turn = [-1] * len(one)
    for begin in range(len(one)):
        if turn[begin] >= 0:
            continue
        turn[begin] = 0
        for ahead, behind in ((one, other), (other, one)):
            at, last = ahead[begin], 0
            while at >= 0 and turn[at] < 0:
                turn[at] = last = 1 - last
                ahead, behind = behind, ahead
                at = ahead[at]
    return np.asarray(turn)


def _balanced(network: Network, trees: Trees, least: float) -> Trees:
    """The trees, edges moved to other routes until none is too full; a rank is two nodes, one that sends and one that
    receives, so that no route leads through it."""
    arcs = Arcs.of(network)
    is_rank = np.asarray([node.kind == "rank" for node in network.topology.nodes])
    heads = np.asarray(arcs.heads) + arcs.nodes * is_rank[arcs.heads]
    arc_of = np.full(len(network.topology.links), -1, np.int32)
    arc_of[list(arcs.links)] = np.arange(len(arcs.links))
    members, fastest = np.asarray(network.collective.members, np.int32), max(arcs.capacity)
    order = np.argsort(trees.src.reshape(-1), kind="stable")
    src, dst, route = (column.reshape(-1)[order].astype(np.int64) for column in (trees.src, trees.dst, trees.route))
    weight = np.repeat(trees.weight, trees.src.shape[1])[order].astype(np.int64)
    hops = np.diff(trees.offset)[route]
    found = _solve.balanced_paths(
        2 * arcs.nodes,
        arcs.tails,
        heads.astype(np.int32),
        np.asarray([float(Fraction(capacity, fastest)) for capacity in arcs.capacity]),
        members[src],
        members[dst] + np.int32(arcs.nodes),
        weight,
        np.arange(len(src), dtype=np.int32),
        np.zeros(len(src), np.int32),
        np.concatenate(([0], np.cumsum(hops))),
        arc_of[pieces(trees.link, trees.offset[route], hops)],
        least * int(trees.weight.sum()) * max(float(link.bandwidth) for link in network.links),
        ROUNDING,
        inf,
        max(1, WORK // (network.collective.ranks * len(arcs.links))),
    )
    route[found.demand] = len(trees.offset) - 1 + np.arange(len(found.demand))
    of_edge = np.empty(len(src), np.int64)
    of_edge[order] = route
    return replace(
        trees,
        route=of_edge.reshape(trees.src.shape),
        offset=np.concatenate([trees.offset, trees.offset[-1] + found.offset[1:]]),
        link=np.concatenate([trees.link, np.asarray(arcs.links)[found.link]]),
    )

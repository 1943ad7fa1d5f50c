"""Routes: how a message gets from rank to rank, through switches and NICs but never through a rank.

For every ordered pair of members joined by such a path, the paths with the fewest links are listed, up to
`MAX_PARALLEL` of them (parallel links, several rails). Engines choose among these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending, in_order, pieces
from syntony.synth.model.network import Network
from syntony.topologies.topology import Link

MAX_PARALLEL = 8

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Route:
    """Links from `src` to `dst`, both ranks of the collective.

    alpha      sum of the links' alphas, seconds
    bandwidth  of the slowest link, bytes/s
    """

    src: int
    dst: int
    links: tuple[int, ...]
    alpha: float
    bandwidth: Fraction


@dataclass(frozen=True)
class Routes:
    """All routes of a network, and whether each pair's list holds every path of any length."""

    routes: tuple[Route, ...]
    complete: bool


def routes_of(network: Network) -> Routes:
    """The shortest routes between members, by source, then by distance round the ring of ranks, then by link ids."""
    position = {member: rank for rank, member in enumerate(network.collective.members)}
    leaving = _leaving(network)
    ranks = network.collective.ranks
    found: list[Route] = []
    complete = True
    for src, member in enumerate(network.collective.members):
        paths, all_of_them = _shortest_paths(leaving, member, position)
        complete = complete and all_of_them
        mine = [_route(src, position[path[-1].dst], path) for path in paths]
        found += sorted(mine, key=lambda route: ((route.dst - route.src) % ranks, route.links))
    return Routes(tuple(found), complete)


@dataclass(frozen=True, eq=False)
class RouteColumns:
    """The routes of pairs of ranks, in columns, those of a pair in the order of their links.

    first   (pairs + 1,)   pair p has the routes first[p] .. first[p + 1]; none if no path joins its ranks
    offset  (routes + 1,)  route r takes link[offset[r]:offset[r + 1]]
    link    routes, flat
    """

    first: Integers
    offset: Integers
    link: Integers


def routes_between(network: Network, src: Integers, dst: Integers, parallel: int = MAX_PARALLEL) -> RouteColumns:
    """The routes from src[p] to dst[p], as in `routes_of`; pairs differ. For a million pairs. `parallel`: at most so
    many of a pair.

    Searches from many ranks at once, breadth first, in the order of `_shortest_paths`: a row is a path so far, and a
    batch the paths to one node, which a link takes further together.
    """
    members = np.asarray(network.collective.members)
    nodes = len(network.topology.nodes)
    sources = ascending(src)
    pair_of = np.full((len(sources), nodes), -1, np.int32)
    pair_of[np.searchsorted(sources, src), members[dst]] = np.arange(len(src))
    pairs: list[Integers] = []
    found: list[Integers] = []
    most = max(1, MOST_STATES // nodes)
    for begin in range(0, len(sources), most):
        starts, wanted = members[sources[begin : begin + most]], pair_of[begin : begin + most]
        for pair, links in _spread(network, starts, wanted, parallel):
            pairs.append(pair)
            found.append(links)
    width = max((links.shape[1] for links in found), default=0)
    lengths = np.concatenate([*(np.full(len(links), links.shape[1]) for links in found), np.zeros(0, np.int64)])
    table = np.concatenate([np.pad(links, ((0, 0), (0, width - links.shape[1]))) for links in found or [_NOTHING]])
    pair = np.concatenate([*pairs, np.zeros(0, np.int64)])
    order = np.lexsort((*table.T[::-1], pair))
    offset = np.concatenate(([0], np.cumsum(lengths[order])))
    first = np.concatenate(([0], np.cumsum(np.bincount(pair, minlength=len(src)))))
    return RouteColumns(first, offset, table[order][np.arange(width) < lengths[order][:, None]])


_NOTHING = np.zeros((0, 0), np.int64)
MOST_STATES = 1 << 24
"""Sources times nodes of a search at once."""


def _spread(
    network: Network, starts: Integers, pair_of: Integers, parallel: int
) -> Iterator[tuple[Integers, Integers]]:
    """By length: the pairs of paths that end, and (paths, length) their links. `pair_of`: (starts, nodes), -1: none."""
    nodes = len(network.topology.nodes)
    usable = np.asarray([link.id for link in network.links], np.int64)
    tails, heads = (ends[usable].astype(np.int64) for ends in network.topology.ends)
    by_tail = in_order(tails)
    leaving, head, count = usable[by_tail], heads[by_tail], np.bincount(tails, minlength=nodes)
    ahead = np.cumsum(count) - count
    ends = np.zeros(nodes, bool)
    ends[list(network.collective.members)] = True
    known = np.zeros(pair_of.size, bool)
    # Batches: `at` is start * nodes + node; `size` paths each, in the rows of `links`.
    at, size = np.arange(len(starts)) * nodes + starts, np.ones(len(starts), np.int64)
    known[at] = True
    links = np.zeros((len(starts), 0), np.int64)
    while len(at):
        node, rows = at % nodes, np.cumsum(size) - size
        batch = np.repeat(np.arange(len(at)), count[node])
        way = pieces(np.arange(len(leaving)), ahead[node], count[node])
        to = at[batch] - node[batch] + head[way]
        useful = ~known[to] & (~ends[head[way]] | (pair_of.reshape(-1)[to] >= 0))
        batch, way, to = batch[useful], way[useful], to[useful]
        taken = _within(to, size[batch], parallel)
        batch, way, to = batch[taken], way[taken], to[taken]
        known[to] = True
        # Batches that meet are one, in the order in which the first of them came.
        _, came, kind = np.unique(to, return_index=True, return_inverse=True)
        order = np.argsort(came[kind], kind="stable")
        batch, way, to = batch[order], way[order], to[order]
        before = pieces(np.arange(len(links)), rows[batch], size[batch])
        links = np.c_[links[before], np.repeat(leaving[way], size[batch])]
        heads_of = np.r_[True, to[1:] != to[:-1]][: len(to)]
        size = np.add.reduceat(size[batch], np.flatnonzero(heads_of)) if len(to) else size[:0]
        at = to[heads_of]
        ended = ends[at % nodes]
        yield np.repeat(pair_of.reshape(-1)[at], size)[np.repeat(ended, size)], links[np.repeat(ended, size)]
        links, at, size = links[~np.repeat(ended, size)], at[~ended], size[~ended]


def _within(to: Integers, size: Integers, most: int) -> NDArray[np.bool_]:
    """Which batches are taken if each node takes them in their order, as long as it has at most so many paths."""
    order = np.argsort(to, kind="stable")
    begins = np.r_[True, to[order][1:] != to[order][:-1]][: len(to)]
    kind = np.cumsum(begins) - 1
    place = np.arange(len(to)) - np.flatnonzero(begins)[kind]
    total, taken = np.zeros(int(begins.sum()), np.int64), np.zeros(len(to), bool)
    for turn in range(int(place.max(initial=-1)) + 1):
        now = place == turn
        fits = total[kind[now]] + size[order[now]] <= most
        taken[order[now]] = fits
        total[kind[now]] += np.where(fits, size[order[now]], 0)
    return taken


def _leaving(network: Network) -> dict[int, list[Link]]:
    leaving: dict[int, list[Link]] = {}
    for link in network.links:
        leaving.setdefault(link.src, []).append(link)
    return leaving


def _route(src: int, dst: int, path: tuple[Link, ...]) -> Route:
    links = tuple(link.id for link in path)
    return Route(src, dst, links, sum(link.alpha for link in path), min(link.bandwidth for link in path))


def _shortest_paths(
    leaving: dict[int, list[Link]], start: int, position: dict[int, int]
) -> tuple[list[tuple[Link, ...]], bool]:
    """Paths of fewest links from `start` to the other members, and whether there are no other simple paths."""
    depth = {start: 0}
    paths: dict[int, list[tuple[Link, ...]]] = {start: [()]}
    queue = deque([start])
    complete = True
    while queue:
        node = queue.popleft()
        if node in position and node != start:
            continue
        for link in leaving.get(node, ()):
            if link.dst == start:
                continue
            if link.dst not in depth:
                depth[link.dst] = depth[node] + 1
                paths[link.dst] = []
                queue.append(link.dst)
            if depth[link.dst] == depth[node] + 1 and len(paths[link.dst]) + len(paths[node]) <= MAX_PARALLEL:
                paths[link.dst] += [(*path, link) for path in paths[node]]
            elif link.dst not in {step.src for path in paths[node] for step in path}:
                complete = False
    found = [path for node, mine in paths.items() if node in position and node != start for path in mine]
    return found, complete

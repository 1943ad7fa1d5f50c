"""Routes: how a message gets from rank to rank, through switches and NICs but never through a rank.

For every ordered pair of members joined by such a path, the paths with the fewest links are listed, up to
`MAX_PARALLEL` of them (parallel links, several rails). Engines choose among these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from syntony.synth.model.network import Network
from syntony.topologies.topology import Link

MAX_PARALLEL = 8


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
        paths, all_of_them = _shortest_paths(leaving, member, position, position)
        complete = complete and all_of_them
        mine = [_route(src, position[path[-1].dst], path) for path in paths]
        found += sorted(mine, key=lambda route: ((route.dst - route.src) % ranks, route.links))
    return Routes(tuple(found), complete)


def links_between(network: Network, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """The links of each route of these pairs of ranks, in the order of `routes_of`; a pair without any is missing."""
    members = network.collective.members
    position = {member: rank for rank, member in enumerate(members)}
    leaving = _leaving(network)
    ends: dict[int, set[int]] = {}
    for src, dst in pairs:
        ends.setdefault(src, set()).add(members[dst])
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for src, wanted in ends.items():
        for path in _shortest_paths(leaving, members[src], position, wanted)[0]:
            found.setdefault((src, position[path[-1].dst]), []).append(tuple([link.id for link in path]))
    for choices in found.values():
        choices.sort()
    return found


def _leaving(network: Network) -> dict[int, list[Link]]:
    leaving: dict[int, list[Link]] = {}
    for link in network.links:
        leaving.setdefault(link.src, []).append(link)
    return leaving


def _route(src: int, dst: int, path: tuple[Link, ...]) -> Route:
    links = tuple(link.id for link in path)
    return Route(src, dst, links, sum(link.alpha for link in path), min(link.bandwidth for link in path))


def _shortest_paths(
    leaving: dict[int, list[Link]], start: int, position: dict[int, int], ends: Collection[int]
) -> tuple[list[tuple[Link, ...]], bool]:
    """Paths of fewest links from `start` to those of the other members that are `ends`, and whether there are no other
    simple paths."""
    depth = {start: 0}
    paths: dict[int, list[tuple[Link, ...]]] = {start: [()]}
    queue = deque([start])
    complete = True
    while queue:
        node = queue.popleft()
        if node in position and node != start:
            continue
        for link in leaving.get(node, ()):
            if link.dst == start or (link.dst in position and link.dst not in ends):
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

"""Bounds for a size: latency and bandwidth together.

A byte that must cross a cut by time T can do so over link e only within a window: after data can have reached the
link's tail, and early enough to get from its head to a rank that wants it.

        holder ──(alphas: d1)──▶ tail ──(alpha of e)──▶ head ──(alphas: d2)──▶ destination       delay = d1 + alpha + d2

So within T link e carries at most bandwidth * (T - delay) of the counted bytes, and a witness that proves
share / (sum of bandwidth) seconds per byte at infinite size proves more at any other size:

        share * size  <=  sum over its links of bandwidth(e) * max(0, T - delay(e))     (Prices: times its price)

That sum grows with T, and the T at which both sides are equal is the bound. (Critical paths of LogP and the alpha-beta
model, applied to a cut instead of one message.)

One cut says little if the path to it is long. So the amount that one rank must receive or send is also bounded by the
greatest flow over time: of all paths to it, the shortest carry data for the longest time. Successive shortest paths of
the static network, in order of their alphas, are such a flow (Ford and Fulkerson 1958), and path i carries
bandwidth(i) * max(0, T - alphas(i)): the same sum. The nearest ranks alone have the shortest paths, but not all of the
data: what the ranks from some distance on must send takes longer paths, and is a bound of its own for each distance.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import block_weights, fitting_generators, member_orbits
from syntony.synth.model.bound import Bounds, Cut, Latency, Partition, Prices, Window, Witness
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network

MOST_WORK = 20_000
"""The most paths times links searched, over all ranks: some tenths of a second. At least a few ranks are tried."""
MOST_NEAREST = 400_000
"""The most ranks times links for which distances are computed, which takes much less than a search for paths."""
FEW = 2
MOST_PATHS = 64
"""The most paths to one rank; fewer than all of them prove nothing, so such a rank is skipped."""
SAME = 1e-9
"""Distances that differ by this part are equal."""

Floats = NDArray[np.float64]


def with_windows(network: Network, bounds: Bounds, arcs: Arcs | None = None) -> Bounds:
    """The bounds, extended by what is known about finite sizes."""
    if bounds.throughput.witness is None:
        return bounds
    arcs = arcs or Arcs.of(network)
    alphas = np.asarray([link.alpha for link in network.links], np.float64)
    windows = [_of_witness(network.collective, arcs, alphas, bounds.throughput.witness)]
    windows += _of_ranks(network, arcs, alphas, bounds.latency)
    return replace(bounds, windows=tuple(windows))


def _of_witness(collective: Collective, arcs: Arcs, alphas: Floats, witness: Witness) -> Window:
    """The window of a witness: for how long each of its links can be used."""
    members = np.zeros(arcs.nodes, bool)
    members[list(collective.members)] = True
    sources, targets = members.copy(), members.copy()
    if isinstance(witness, Cut):
        inside = np.zeros(arcs.nodes, bool)
        inside[list(witness.nodes)] = True
        here, there = (~inside, inside) if witness.entering else (inside, ~inside)
        sources, targets = members & here, members & there
    if collective.kind in ("broadcast", "scatter"):
        sources = np.arange(arcs.nodes) == collective.members[collective.root]
    if collective.kind in ("reduce", "gather"):
        targets = np.arange(arcs.nodes) == collective.members[collective.root]
    before, after = _nearest(arcs, alphas, sources), _nearest(arcs.reversed(), alphas, targets)
    arc_of = {link: arc for arc, link in enumerate(arcs.links)}
    used = np.asarray([arc_of[link] for link in witness.links], np.int64)
    capacity = np.asarray([float(arcs.capacity[arc]) for arc in used.tolist()]) * float(arcs.unit)
    if isinstance(witness, Prices):
        capacity *= np.asarray([float(price) for price in witness.prices])
    delay = before[arcs.tails[used]] + alphas[used] + after[arcs.heads[used]]
    if isinstance(witness, Partition) and witness.adders:
        extra = float(witness.bandwidth) - float(capacity.sum())
        capacity, delay = np.append(capacity, max(extra, 0.0)), np.append(delay, 0.0)
    return Window.of(float(witness.share), delay, capacity)


def _nearest(arcs: Arcs, alphas: Floats, starts: NDArray[np.bool_]) -> Floats:
    """The alphas on the shortest path to each node from the nearest of the starts."""
    ids = np.flatnonzero(starts).astype(np.int32)
    source = np.full(len(ids), arcs.nodes, np.int32)
    tails, heads = np.concatenate((arcs.tails, source)), np.concatenate((arcs.heads, ids))
    paths = ShortestPaths(arcs.nodes + 1, tails, heads, np.concatenate((alphas, np.zeros(len(ids)))))
    return np.asarray(paths.distances(arcs.nodes), np.float64)[:-1]


@dataclass(frozen=True, eq=False)
class _Asked:
    """`share` of the size must get to the sink from these sources together, of which the nearest is `delay` away.

    rate  units of bandwidth that the flow cannot exceed
    """

    graph: Arcs
    sources: Sequence[int]
    sink: int
    share: float
    delay: float
    rate: float


def _of_ranks(network: Network, arcs: Arcs, alphas: Floats, latency: Latency) -> Iterator[Window]:
    """Windows of what one rank must get from some others, or send to them. Those that begin latest and those that need
    most time for their bytes come first, by turns."""
    asked = list(_asked(network, arcs, alphas, latency))
    latest = sorted(asked, key=lambda one: -one.delay)
    fullest = sorted(asked, key=lambda one: -one.share / one.rate)
    work = 0
    for number, one in enumerate(dict.fromkeys(chain.from_iterable(zip(latest, fullest, strict=True)))):
        if number >= FEW and work > MOST_WORK:
            return
        paths = _successive_paths(one.graph, alphas, one.sources, one.sink)
        work += (1 + len(paths)) * len(arcs.tails)
        if len(paths) <= MOST_PATHS:
            delays, rates = np.asarray(paths, np.float64).reshape(-1, 2).T
            yield Window.of(one.share, delays, rates * float(arcs.unit))


def _asked(network: Network, arcs: Arcs, alphas: Floats, latency: Latency) -> Iterator[_Asked]:
    """For each rank, all others from some distance on. What a sum needs from one rank, it does not need twice: then
    each other rank is asked alone, the narrowest of those at a distance."""
    members, alone = np.asarray(network.collective.members), network.collective.kind == "all_reduce"
    sinks = _first(network, latency)[: max(FEW, MOST_NEAREST // len(arcs.tails))]
    for backwards, graph in ((False, arcs), (True, arcs.reversed())):
        paths = ShortestPaths(graph.nodes, graph.heads, graph.tails, alphas)
        into = np.bincount(graph.heads, np.asarray(graph.capacity, np.float64), graph.nodes)
        out = np.bincount(graph.tails, np.asarray(graph.capacity, np.float64), graph.nodes)[members]
        for sink in sinks:
            shares = _owed(network.collective, sink, backwards)
            delays = paths.distances(members[sink])[members]
            order = np.flatnonzero(shares)
            order = order[np.lexsort((out[order], -delays[order]))]
            nearer = np.flatnonzero(-np.diff(delays[order]) > SAME * delays[order][:-1]) + 1
            for first, end in pairwise([0, *nearer.tolist(), len(order)] if len(order) else []):
                chosen = order[first : first + 1] if alone else order[:end]
                share, rate = float(shares[chosen].sum()), min(into[members[sink]], out[chosen].sum())
                yield _Asked(graph, members[chosen].tolist(), members[sink], share, delays[order[first]], rate)


def _first(network: Network, latency: Latency) -> list[int]:
    """Members by position, one of each orbit; first the two that are farthest apart."""
    position = {member: place for place, member in enumerate(network.collective.members)}
    apart = latency.seconds_witness
    ends = [position[apart.dst], position[apart.src]] if apart else []
    orbits = member_orbits(network, fitting_generators(network))
    return list(dict.fromkeys([*ends, *(position[orbit[0]] for orbit in orbits)]))


def _owed(collective: Collective, sink: int, backwards: bool) -> Floats:
    """Per member, the share of the size that the sink must get from it; `backwards`: must send to it."""
    weights, unit = block_weights(collective), float(collective.unit)
    shares = np.zeros(collective.ranks)
    match collective.kind, backwards:
        case "all_to_all", _:
            shares[:] = unit * (weights[sink] if backwards else weights[:, sink])
        case ("all_gather", False) | ("reduce_scatter", True):
            shares[:] = unit * weights
        case ("gather", False) | ("scatter", True) if sink == collective.root:
            shares[:] = unit * weights
        case ("broadcast", False) | ("reduce", True):
            shares[collective.root] = 1.0
        case "all_reduce", False:
            shares[:] = 1.0
    shares[sink] = 0.0
    return shares


def _successive_paths(graph: Arcs, alphas: Floats, sources: Sequence[int], sink: int) -> list[tuple[float, int]]:
    """(alphas, capacity) of the successive shortest paths from any source to the sink; more than MOST_PATHS: too many.

    Parallel arcs count as they are; residual arcs run backwards at minus their alpha (Dijkstra with potentials).
    """
    leaving: list[list[int]] = [[] for _ in range(graph.nodes)]
    head: list[int] = []
    left: list[int] = []
    cost: list[float] = []
    ends = zip(graph.tails.tolist(), graph.heads.tolist(), graph.capacity, alphas.tolist(), strict=True)
    for tail, to, capacity, alpha in ends:
        for one, other, room, price in ((tail, to, capacity, alpha), (to, tail, 0, -alpha)):
            leaving[one].append(len(head))
            head.append(other)
            left.append(room)
            cost.append(price)
    potential = [0.0] * graph.nodes
    paths: list[tuple[float, int]] = []
    infinite = float("inf")
    while len(paths) <= MOST_PATHS:
        distance, came = [infinite] * graph.nodes, [-1] * graph.nodes
        heap = []
        for source in sources:
            distance[source] = -potential[source]  # reduced: the super source has potential 0 and arcs of cost 0
            heap.append((distance[source], source))
        heapq.heapify(heap)
        while heap:
            far, node = heapq.heappop(heap)
            if far > distance[node]:
                continue
            for place in leaving[node]:
                if left[place]:
                    other = head[place]
                    reached = far + max(0.0, cost[place] + potential[node] - potential[other])
                    if reached < distance[other] - 1e-18:
                        distance[other], came[other] = reached, place
                        heapq.heappush(heap, (reached, other))
        if distance[sink] == infinite:
            break
        reach = distance[sink]
        potential = [p + min(d, reach) for p, d in zip(potential, distance, strict=True)]
        node, amount, way = sink, None, []
        while came[node] >= 0:
            place = came[node]
            way.append(place)
            amount = left[place] if amount is None else min(amount, left[place])
            node = head[place ^ 1]
        assert amount is not None
        for place in way:
            left[place] -= amount
            left[place ^ 1] += amount
        paths.append((sum(cost[place] for place in way), amount))
    return paths

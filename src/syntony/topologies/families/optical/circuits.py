"""Circuits: which rank's transmitter is joined to which rank's receiver, when there are fewer ports than peers.

Every rank has some ports; a port sends to one rank and receives from one rank. So the circuits of one port number over
all ranks are (part of) a permutation, and a fabric of d ports is d of them. Two ways to find good permutations:

* rings, for all_reduce. In a group of n members, every stride p without a common divisor with n makes one ring through
  all of them: 0, p, 2p, ... (mod n). TopoOpt's TotientPerms takes all such strides; SelectPermutations picks d of them
  near 1, q, q^2, ... with q = n^(1/d), so that a route that adds up strides is short (about d n^(1/d) hops).

         n = 8, strides 1 and 3:    0→1→2→3→4→5→6→7→0     0→3→6→1→4→7→2→5→0

* matchings, for everything else: port by port, the pairs with the most bytes get a circuit. A pair with k circuits
  already counts with 1/(k+1) of its bytes (D'Hondt's apportionment; TopoOpt halves them). A matching is found greedily,
  heaviest pair first, so it weighs at least half of the best one (TopoOpt finds the best). Of equal pairs, those at the
  distances of SelectPermutations come first: uniform traffic, which must be relayed anyway, then gets short routes.

Wang et al.: TopoOpt (NSDI'23), section 4.3 and algorithm 1. Khani et al.: SiP-ML (SIGCOMM'21).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from syntony.topologies.demand import AllReduce, Demand

Circuits = Counter[tuple[int, int]]
"""The number of circuits from one rank to another, by pair."""


def strides(members: int, count: int) -> list[int]:
    """`count` strides for rings through `members` >= 2; if there are fewer different ones, they are repeated."""
    coprime = [p for p in range(1, members) if math.gcd(p, members) == 1]
    ratio = members ** (1 / count)
    chosen: list[int] = []
    for i in range(min(count, len(coprime))):
        unused = [p for p in coprime if p not in chosen]
        chosen.append(min(unused, key=lambda p: abs(p - ratio**i)))
    return [chosen[i % len(chosen)] for i in range(count)]


def rings(groups: list[AllReduce], ports: int) -> Circuits:
    """`ports` rings through every group; the groups share no rank."""
    circuits: Circuits = Counter()
    chosen: dict[int, list[int]] = {}
    for group in groups:
        size = len(group.members)
        for stride in chosen.setdefault(size, strides(size, ports)):
            for position, member in enumerate(group.members):
                circuits[member, group.members[(position + stride) % size]] += 1
    return circuits


def matchings(demand: Demand, ports: int) -> Circuits:
    """`ports` matchings of the demand's pairs, each of pairs that share no sender and no receiver."""
    circuits: Circuits = Counter()
    granted = np.zeros(len(demand.src), dtype=np.int64)
    distance = (demand.dst - demand.src) % demand.ranks
    for place, stride in enumerate(strides(demand.ranks, ports) if ports else ()):
        distance[(demand.dst - demand.src) % demand.ranks == stride] = place - ports
    for _ in range(ports):
        order = np.lexsort((demand.src, distance, -demand.bytes / (granted + 1)))
        sends, receives = bytearray(demand.ranks), bytearray(demand.ranks)
        taken = []
        for pair, src, dst in zip(order.tolist(), demand.src[order].tolist(), demand.dst[order].tolist(), strict=True):
            if not (sends[src] or receives[dst]):
                sends[src] = receives[dst] = True
                taken.append(pair)
                circuits[src, dst] += 1
                if len(taken) == demand.ranks:
                    break
        granted[taken] += 1
    return circuits


def layers(groups: tuple[AllReduce, ...]) -> list[list[AllReduce]]:
    """The groups in layers; the groups of a layer share no rank, so its rings take one port of each rank."""
    result: list[tuple[set[int], list[AllReduce]]] = []
    for group in sorted(groups, key=lambda group: (-group.sent, -len(group.members))):
        for ranks, layer in result:
            if (
                layer[0].sent == group.sent
                and len(layer[0].members) == len(group.members)
                and ranks.isdisjoint(group.members)
            ):
                ranks.update(group.members)
                layer.append(group)
                break
        else:
            result.append((set(group.members), [group]))
    return [layer for _, layer in result]


def apportioned(seats: int, votes: list[float]) -> list[int]:
    """`seats` divided in proportion to `votes` by D'Hondt's method."""
    given = [0] * len(votes)
    for _ in range(seats if any(votes) else 0):
        most = max(range(len(votes)), key=lambda i: votes[i] / (given[i] + 1))
        given[most] += 1
    return given


def connected(ranks: int, ports: int, circuits: Callable[[int], Circuits]) -> Circuits:
    """`circuits(ports)` if every rank then reaches every other; else `circuits(ports - 1)` and a ring through all."""
    found = circuits(ports)
    if _strongly_connected(ranks, found):
        return found
    return rings([AllReduce(tuple(range(ranks)), 1.0)], 1) + circuits(ports - 1)


def _strongly_connected(ranks: int, circuits: Circuits) -> bool:
    for way in (0, 1):
        neighbours: list[list[int]] = [[] for _ in range(ranks)]
        for pair in circuits:
            neighbours[pair[way]].append(pair[1 - way])
        reached = bytearray(ranks)
        reached[0] = True
        frontier = [0]
        for rank in frontier:
            for neighbour in neighbours[rank]:
                if not reached[neighbour]:
                    reached[neighbour] = True
                    frontier.append(neighbour)
        if len(frontier) < ranks:
            return False
    return True

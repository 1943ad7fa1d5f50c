"""Trees for one root per orbit: those of all other roots are their images under the network's symmetry.

A group that is free on ranks (symmetry/free_group.py) maps the trees of a root to those of all roots in its orbit, and
then all links of an orbit carry the same load. So for the trees of one root only the total capacity of each *orbit* of
links matters: it limits how many of their edges lie on any of its links.

    torus, two orbits of links: → and ↓       capacity: as many edges on → as on ↓
                                                                                     r → a → b
        order of the ranks: nearest first         every rank but the root takes        ↓   ↓
        r   a,c   b,d   e                         one edge from an earlier one         c → d → e

1. Ranks are put in order, by distance from the root. One edge into every rank, from an earlier one, is a tree.
2. A *way* to a rank is the sequence of orbits of the links from an earlier rank to it, through switches. Of the ranks
   from which a way leads there, the earliest is taken, so only ways are to be chosen. Ranks with the same ways are
   alike.
3. How many of the alike ranks take which way, over all trees, is a small linear program: every rank must be reached,
and
   no orbit of links may exceed its capacity. If routes are single links, this is a transport problem, whose vertices
   are whole; other solutions are rounded.
4. If this order does not meet the capacities, the program may divide the trees among further orders, with ties broken
   by a random generator with a fixed seed.

The capacity is what links carry in the time of the throughput bound, as in engine `forest`. The final loads are counted
exactly when the gap is computed. Zhao et al., ForestColl (NSDI'26), pack trees for all roots at once. Symmetry was used
for schedules by SyCCL (SIGCOMM'25); the program over orbits is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.demand import block_weights, fitting_generators
from syntony.synth.bounds.throughput import throughput
from syntony.synth.engines.engine import EngineError
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Generator, Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.groups import chunk_permutation
from syntony.synth.symmetry.link_orbits import link_orbits
from syntony.topologies.topology import Permutation

ORDERS = 8
"""Further orders of the ranks that are tried if the first is not enough."""
MOST_TREES = 64
"""Most trees per root. Capacities that need more to be met exactly are rounded."""
MOST_WAYS = 1000
"""Most ways of one order; larger networks are left to other engines."""

_NEVER = np.iinfo(np.int64).max
_SEED = 20

Integers = NDArray[np.signedinteger]
Way = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of a way: per node the position in the order of the earliest rank from which it leads there, and its
    last link.

    place  int64 (nodes,)  _NEVER if the way does not lead there
    link   int64 (nodes,)  of the network
    """

    place: Integers
    link: Integers


@dataclass(frozen=True, eq=False)
class Order:
    """An order of the ranks as seen from a root, and the ways from earlier to later ones.

    root   index of the root among the representatives of the group (`homes`)
    ranks  int64 (n,)  nodes, in order; the root first
    level  int64 (nodes,)  hops from rank to rank, from the root; None if the order does not go by them
    ways   all prefixes of ways
    alike  of ranks that are alike, their ways and the ranks
    """

    root: int
    ranks: Integers
    level: Integers | None
    ways: dict[Way, _Step]
    alike: list[tuple[tuple[Way, ...], Integers]]


def trees_by_orbits(network: Network, multiple: int = 1) -> Schedule | None:
    """An all_gather whose trees are stored for one root per orbit; None if no declared symmetry moves all ranks.

    Every block is cut into equally many chunks, a multiple of `multiple`. Raises EngineError if there are too many
    ways. No bounds are set.
    """
    nodes = len(network.topology.nodes)
    group = FreeGroup.within(nodes, network.collective.members, fitting_generators(network))
    if group.order == 1:
        return None
    wires = Wires.of(network, group.generators, group.order, group.homes)
    owed = block_weights(network.collective)
    weight = [int(owed[network.collective.members.index(home)]) for home in group.homes]
    orders = [wires.order(root, np.arange(nodes)) for root in range(len(group.homes))]
    found = Division.of(wires, orders, weight)
    if found.excess > 1 + 1e-9:
        chance = np.random.default_rng(_SEED)
        roots = range(len(group.homes))
        orders += [wires.order(root, chance.permutation(nodes)) for _ in range(ORDERS - 1) for root in roots]
        found = Division.of(wires, orders, weight)
    return _schedule(network, group, found, found.trees(multiple))


@dataclass(frozen=True, eq=False)
class Wires:
    """The network's links in columns, and the orbits that they are in.

    homes  the nodes of the roots whose trees are packed
    room   per orbit, capacity: how many edges of weight 1 the trees of all these roots may have there
    """

    homes: tuple[int, ...]
    links: Integers
    tails: Integers
    heads: Integers
    orbit: Integers
    is_rank: NDArray[np.bool_]
    room: list[Fraction]
    members: Integers

    @staticmethod
    def of(network: Network, generators: Sequence[Permutation], images: int, homes: tuple[int, ...]) -> Wires:
        """`images`: how many roots each of `homes` stands for."""
        links = np.asarray([link.id for link in network.links], np.int64)
        orbit = link_orbits(network.topology, generators)[links]
        _, first, orbit, size = np.unique(orbit, return_index=True, return_inverse=True, return_counts=True)
        bound = throughput(network).seconds_per_byte / network.collective.unit
        room = [
            bound * network.links[one].bandwidth * count / images
            for one, count in zip(first.tolist(), size.tolist(), strict=True)
        ]
        return Wires(
            homes,
            links,
            np.asarray([link.src for link in network.links], np.int64),
            np.asarray([link.dst for link in network.links], np.int64),
            orbit,
            np.asarray([node.kind == "rank" for node in network.topology.nodes]),
            room,
            np.asarray(network.collective.members, np.int64),
        )

    def order(self, root: int, tie: Integers, nearest_first: bool = True) -> Order:
        """The ranks by distance from the root, and then by `tie`, a number for every node; or by `tie` alone."""
        level, longest = self._levels(self.homes[root])
        distance = level if nearest_first else np.minimum(level, 1)
        ranks = self.members[np.lexsort((tie[self.members], distance[self.members]))]
        ways = self._ways(ranks, longest)
        place = np.full(len(level), _NEVER)
        place[ranks] = np.arange(len(ranks))
        whole = [(way, step.place < place) for way, step in ways.items() if way]
        open_ways = [(way, here) for way, here in whole if (here & self.is_rank).any()]
        table = np.stack([here[ranks[1:]] for _, here in open_ways])
        kinds, kind = np.unique(table.T, axis=0, return_inverse=True)
        alike = [
            (tuple(open_ways[column][0] for column in np.flatnonzero(row)), ranks[1:][kind.reshape(-1) == number])
            for number, row in enumerate(kinds)
        ]
        return Order(root, ranks, level if nearest_first else None, ways, alike)

    def _levels(self, root: int) -> tuple[Integers, int]:
        """Per rank its distance in hops from rank to rank, and the most links of any of these hops."""
        level = np.full(len(self.is_rank), -1)
        level[root] = 0
        frontier, hop, longest = np.zeros(len(level), bool), 0, 0
        frontier[root] = True
        while frontier.any():
            hop += 1
            passed, nearest, links = np.zeros(len(level), bool), np.zeros(len(level), bool), 0
            while frontier.any():
                links += 1
                reached = np.zeros(len(level), bool)
                reached[self.heads[frontier[self.tails]]] = True
                fresh = reached & self.is_rank & (level < 0)
                level[fresh] = hop
                nearest |= fresh
                longest = max(longest, links) if fresh.any() else longest
                frontier = reached & ~self.is_rank & ~passed
                passed |= frontier
            frontier = nearest
        return level, longest

    def _ways(self, ranks: Integers, longest: int) -> dict[Way, _Step]:
        """All ways of at most `longest` links, with their prefixes."""
        start = np.full(len(self.is_rank), _NEVER)
        start[ranks] = np.arange(len(ranks))
        ways: dict[Way, _Step] = {(): _Step(start, np.full(len(start), -1))}
        by_orbit = [np.flatnonzero(self.orbit == orbit) for orbit in range(len(self.room))]
        frontier: list[Way] = [()]
        for _ in range(longest):
            further: list[Way] = []
            for way in frontier:
                place = np.where(self.is_rank, _NEVER, ways[way].place) if way else start
                for orbit, links in enumerate(by_orbit):
                    links = links[place[self.tails[links]] < _NEVER]
                    if not len(links):
                        continue
                    step = self._onwards(place, links)
                    further.append((*way, orbit))
                    ways[further[-1]] = step
                    if len(ways) > MOST_WAYS:
                        raise EngineError(f"there are more than {MOST_WAYS} ways from rank to rank")
            frontier = further
        return ways

    def _onwards(self, place: Integers, links: Integers) -> _Step:
        """Per head of the links the earliest place that leads there."""
        best = links[np.lexsort((place[self.tails[links]], self.heads[links]))]
        heads = self.heads[best]
        first = np.r_[True, heads[1:] != heads[:-1]]
        step = _Step(np.full(len(place), _NEVER), np.full(len(place), -1))
        step.place[heads[first]] = place[self.tails[best[first]]]
        step.link[heads[first]] = best[first]
        return step


@dataclass(frozen=True, eq=False)
class _Choice:
    """A variable of the program: how many of the ranks `alike[kind]` of an order take the way.

    cost  of each: 1 for an edge between ranks of one level; in orders that do not go by levels, how late the parents
          are in the order, from 0 to 1
    """

    order: int
    kind: int
    way: Way
    cost: float


@dataclass(frozen=True, eq=False)
class Division:
    """The linear program at the top of this file, and the least factor over the capacities that it needs (`excess`)."""

    wires: Wires
    orders: list[Order]
    weight: list[int]
    choices: list[_Choice]
    excess: float

    @staticmethod
    def of(wires: Wires, orders: list[Order], weight: list[int]) -> Division:
        choices = []
        for number, order in enumerate(orders):
            for kind, (ways, ranks) in enumerate(order.alike):
                for way in ways:
                    place = order.ways[way].place[ranks]
                    if order.level is None:
                        cost = float(place.mean()) / len(order.ranks)
                    else:
                        cost = float(order.level[order.ranks[place[0]]] == order.level[ranks[0]])
                    choices.append(_Choice(number, kind, way, cost))
        division = Division(wires, orders, weight, choices, 0.0)
        solved = division._solve([float(room) for room in wires.room], 1, None)
        if solved is None:
            raise EngineError("the ranks do not all reach one another")
        return Division(wires, orders, weight, choices, float(solved[-1]))

    def trees(self, multiple: int) -> list[Tree]:
        """Trees in whole numbers, equally many of every root."""
        room = self.wires.room
        if self.excess <= 1 + 1e-9:
            fitting = lcm(multiple, *(share.denominator for share in room if share.denominator <= MOST_TREES))
            for count in sorted({multiple, 2 * multiple, 4 * multiple, fitting}):
                if count > MOST_TREES:
                    continue
                solved = self._solve([float(int(count * share)) for share in room], count, 1.0)
                if solved is not None and np.abs(solved - np.rint(solved)).max() < 1e-6:
                    return self._grown(np.rint(solved).astype(np.int64), count)
        count = multiple * max(1, MOST_TREES // 4 // multiple)
        solved = self._solve([float(share * count) * max(self.excess, 1) for share in room], count, 1 + 1e-7)
        assert solved is not None, "the program was solved with these capacities before"
        return self._grown(self._rounded(solved, count), count)

    def _solve(self, room: list[float], count: int, within: float | None) -> NDArray[np.float64] | None:
        """How many ranks take each choice for `count` trees per root, then how many trees each order has.

        With `within`: loads of at most this factor of the capacities, few edges between ranks of one level, few links;
        None if that is infeasible. Without: the least factor is minimized, and is the last number returned.
        """
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        choices, orders = self.choices, self.orders
        roots = len(self.weight)
        width = len(choices) + len(orders) + 1
        entries: list[tuple[int, int, float]] = []
        kinds: dict[tuple[int, int], int] = {}
        for column, choice in enumerate(choices):
            row = kinds.setdefault((choice.order, choice.kind), len(kinds))
            entries.append((row, column, 1.0))
        for (order, kind), row in kinds.items():
            entries.append((row, len(choices) + order, -float(len(orders[order].alike[kind][1]))))
        for number, order_of in enumerate(orders):
            entries.append((len(kinds) + order_of.root, len(choices) + number, 1.0))
        rows, columns, numbers = zip(*entries, strict=True)
        equal = coo_array((numbers, (rows, columns)), shape=(len(kinds) + roots, width))
        right = np.r_[np.zeros(len(kinds)), np.full(roots, float(count))]
        loads = [
            (orbit, column, float(self.weight[orders[choice.order].root]))
            for column, choice in enumerate(choices)
            for orbit in choice.way
        ]
        loads += [(orbit, width - 1, -share) for orbit, share in enumerate(room)]
        rows, columns, numbers = zip(*loads, strict=True)
        upper = coo_array((numbers, (rows, columns)), shape=(len(room), width))
        if within is None:
            cost = np.r_[np.zeros(width - 1), 1.0]
            limits: list[tuple[float, float | None]] = [(0.0, None)] * width
        else:
            cost = np.asarray(
                [choice.cost + 0.01 * len(choice.way) for choice in choices] + [0.0] * (width - len(choices))
            )
            limits = [(0.0, None)] * (width - 1) + [(within, within)]
        answer = linprog(cost, upper.tocsr(), np.zeros(len(room)), equal.tocsr(), right, limits, method="highs-ds")
        return answer.x if answer.status == 0 else None

    def _rounded(self, solved: NDArray[np.float64], count: int) -> Integers:
        """Whole numbers near the solution, that add up; what is left over goes where most capacity is left."""
        whole = np.zeros(len(solved), np.int64)
        first = len(self.choices)
        for root in range(len(self.weight)):
            mine = [first + number for number, order in enumerate(self.orders) if order.root == root]
            whole[mine] = _shares(solved[mine], count)
        kinds = [(choice.order, choice.kind) for choice in self.choices]
        load = np.zeros(len(self.wires.room))
        for order, kind in dict.fromkeys(kinds):
            begin = kinds.index((order, kind))
            chosen = self.choices[begin : begin + len(self.orders[order].alike[kind][0])]
            wanted = int(whole[first + order]) * len(self.orders[order].alike[kind][1])
            parts = solved[begin : begin + len(chosen)]
            floors = np.floor(parts * (wanted / max(float(parts.sum()), 1e-9)) + 1e-6).astype(np.int64)
            for _ in range(wanted - int(floors.sum())):
                fullest = [max(load[orbit] / float(self.wires.room[orbit]) for orbit in one.way) for one in chosen]
                taken = int(np.argmin(fullest))
                floors[taken] += 1
                load[list(chosen[taken].way)] += self.weight[self.orders[order].root]
            whole[begin : begin + len(chosen)] = floors
        return whole

    def _grown(self, whole: Integers, count: int) -> list[Tree]:
        """The trees, one after another: in each, as many of the alike ranks take each way as the numbers say."""
        trees: list[Tree] = []
        for number, order in enumerate(self.orders):
            many = int(whole[len(self.choices) + number])
            chosen = np.full((many, len(self.wires.is_rank)), -1)
            for kind, (_, ranks) in enumerate(order.alike if many else ()):
                mine = [at for at, choice in enumerate(self.choices) if (choice.order, choice.kind) == (number, kind)]
                chosen[:, ranks] = np.repeat(mine, whole[mine]).reshape(len(ranks), many).T
            trees += [Tree(order, row) for row in chosen]
        assert len(trees) == count * len(self.weight)
        return sorted(trees, key=lambda tree: tree.order.root)

    def edges(self, tree: Tree) -> tuple[Integers, Integers, list[tuple[int, ...]]]:
        """Per rank of the tree but the root, in order: its parent, the depth of the parent, and the links between."""
        wires, order = self.wires, tree.order
        ranks = order.ranks[1:]
        parent = np.zeros(len(wires.is_rank), np.int64)
        routes: dict[int, tuple[int, ...]] = {}
        for at in np.unique(tree.choice[ranks]).tolist():
            way = self.choices[at].way
            mine = ranks[tree.choice[ranks] == at]
            node, taken = mine, []
            for length in range(len(way), 0, -1):
                link = order.ways[way[:length]].link[node]
                taken.append(wires.links[link].tolist())
                node = wires.tails[link]
            parent[mine] = node
            routes.update(zip(mine.tolist(), zip(*reversed(taken), strict=True), strict=True))
        depth = {int(order.ranks[0]): 0}
        for rank, above in zip(ranks.tolist(), parent[ranks].tolist(), strict=True):
            depth[rank] = depth[above] + 1
        return (
            parent[ranks],
            np.asarray([depth[rank] - 1 for rank in ranks.tolist()]),
            [routes[r] for r in ranks.tolist()],
        )


def _shares(parts: NDArray[np.float64], count: int) -> Integers:
    """Whole numbers near the parts that add up to `count`."""
    whole = np.floor(parts + 1e-6).astype(np.int64)
    whole[np.argsort(whole - parts)[: count - int(whole.sum())]] += 1
    return whole


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: an order of the ranks, and per node the number of the choice by which it is reached."""

    order: Order
    choice: Integers


def _schedule(network: Network, group: FreeGroup, division: Division, trees: list[Tree]) -> Schedule:
    """Every tree carries a chunk of its root's block, step by step of its depth."""
    topology = network.topology
    count = len(trees) // len(group.homes)
    chunks = ChunkTable(
        np.repeat(np.arange(network.collective.ranks), count), np.repeat(block_weights(network.collective), count)
    )
    collective = replace(network.collective, chunks=chunks)
    position = np.full(len(topology.nodes), -1)
    position[list(collective.members)] = np.arange(collective.ranks)
    rows: list[Integers] = []
    routes: list[tuple[int, ...]] = []
    for value, tree in enumerate(trees):
        src, step, taken = division.edges(tree)
        rows.append(np.stack([np.full(len(src), value), position[src], position[tree.order.ranks[1:]], step]))
        routes += taken
    value, src, dst, step = np.concatenate(rows, axis=1)
    order = np.argsort(step, kind="stable")
    hops = [len(routes[row]) for row in order.tolist()]
    transfers = Transfers(
        value[order],
        value[order],
        src[order],
        dst[order],
        step[order],
        np.r_[0, np.cumsum(hops)],
        np.asarray([link for row in order.tolist() for link in routes[row]]),
    )
    owner = position[list(group.homes)].repeat(count)
    listed = owner * count + np.tile(np.arange(count), len(group.homes))
    values = Values(listed, owner, np.zeros(len(listed) + 1, np.int64), np.zeros(0, np.int64))
    symmetry = []
    for generator in group.generators:
        moved = chunk_permutation(collective, generator)
        assert moved is not None, "all blocks of an orbit are cut alike"
        symmetry.append(Generator(generator, moved))
    return Schedule(topology, collective, values, transfers, symmetry=tuple(symmetry))

r"""Engine `in_network`: trees whose inner nodes are switches that add, and switches that copy.

    all_reduce                          reduce, reduce_scatter        broadcast, all_gather

         spine: 0+1+2+3                          rank 0                    rank 0
         ▲ ▼          ▲ ▼                          ▲                          ▼
    leaf: 0+1      leaf: 2+3              switch: 1+2+3               switch ▶ 1, 2, 3
     ▲ ▼  ▲ ▼       ▲ ▼  ▲ ▼              ▲      ▲      ▲
      0    1         2    3               1      2      3

Data is summed up a cheap tree to its root and copied down another one. On the way, ranks and switches that reduce add
the messages that meet in them; other switches and NICs only forward. The root of an all_reduce is a switch that adds
and copies (or, if none does both, a rank); for the other collectives it is the rank that wants or has the block. A link
costs its load so far, in seconds, plus what the chunk would add, and each chunk takes the root that leaves the busiest
link least loaded. So chunks spread over rails and spines.

Chunks that share a link follow one another a step apart; others move at the same time, as far as the switches' slots
allow. With aggregators that serve only hot parameters (Pan et al., Libra, arXiv 2205.05243), switches sum the `hot`
share of an all_reduce, and ranks the rest (engine forest, or greedy if forest cannot).

The trees are those of Graham et al. (SHARP, COM-HPC'16) and Sapio et al. (SwitchML, NSDI'21, section 6).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

import numpy as np

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.forest import search as forest
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder, Values
from syntony.synth.symmetry.groups import expand, fold
from syntony.topologies.topology import Link, Topology

ENGINE = "in_network"
PIPELINE_CHUNKS = 64
"""Least number of chunks of an all_reduce, reduce or broadcast block, if the collective has only one."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError if no switch can help, OutOfTimeError."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine in_network takes no --steps or --rounds; use --engine sccl")
    _check_help(topology, collective)
    hot = min((node.aggregator.hot for node in topology.nodes if node.aggregator), default=Fraction(1))
    if hot == 1 or not collective.combining:
        schedule = _Trees(topology, _pipelined(topology, collective), budget).schedule()
    elif collective.kind == "all_reduce":
        schedule = _Trees(topology, _pipelined(topology, collective), budget).schedule()
        schedule = _beside(schedule, hot, _among_ranks(topology, collective, max(1, int(size * (1 - hot))), budget))
    else:
        raise EngineError(
            f"the switches of {topology.name} add {hot} of a buffer, which this engine does for all_reduce"
        )
    return fold(replace(schedule, bounds=bounds_of(topology, schedule.collective)))


def _check_help(topology: Topology, collective: Collective) -> None:
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine in_network: {collective.kind} neither sums nor copies, so no switch can help")
    can = any(node.reduces if collective.combining else node.multicast for node in topology.nodes)
    if not can:
        does = "adds" if collective.combining else "copies"
        raise EngineError(
            f"engine in_network: no switch of {topology.name} {does}; give its switches a profile, "
            "such as star:4,aggregator=switchml"
        )


def _pipelined(topology: Topology, collective: Collective) -> Collective:
    """Cuts a single chunk into many; if few switches can help, into equally many for each."""
    if collective.blocks > 1 or len(collective.chunks) > 1:
        return collective
    able = sum(node.able for node in topology.nodes)
    pieces = PIPELINE_CHUNKS if able > PIPELINE_CHUNKS else able * ceil(PIPELINE_CHUNKS / able)
    weight = np.full(pieces, collective.chunks.weight[0])
    return replace(collective, chunks=ChunkTable(np.zeros(pieces, np.int32), weight))


def _among_ranks(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """An all_reduce in which switches only forward, all transfers listed."""
    try:
        return expand(forest.run(topology, collective, size, budget.unheard()))
    except EngineError:  # The engine does not support this topology.
        return expand(greedy.run(topology, collective, size, budget.unheard()))


def _beside(one: Schedule, share: Fraction, other: Schedule) -> Schedule:
    """Both at once: the first `share` of the buffer by `one`, the rest by `other`."""
    chunks, values = len(one.collective.chunks), len(one.values)
    mine, theirs, moved, more = one.values, other.values, one.transfers, other.transfers
    weights = [schedule.collective.chunks.weight.astype(np.int64) for schedule in (one, other)]
    ratio = share / (1 - share) * int(weights[1].sum()) / int(weights[0].sum())
    weight = np.concatenate((weights[0] * ratio.numerator, weights[1] * ratio.denominator))
    table = ChunkTable(np.zeros(len(weight), np.int32), weight // np.gcd.reduce(weight))
    return replace(
        one,
        collective=replace(one.collective, chunks=table),
        values=Values(
            np.concatenate((mine.chunk, theirs.chunk + chunks)),
            np.concatenate((mine.rank, theirs.rank)),
            np.concatenate((mine.offset, theirs.offset[1:] + mine.offset[-1])),
            np.concatenate((mine.operand, theirs.operand + values)),
        ),
        transfers=Transfers(
            np.concatenate((moved.value, more.value + values)),
            np.concatenate((moved.result, more.result + values)),
            np.concatenate((moved.src, more.src)),
            np.concatenate((moved.dst, more.dst)),
            np.concatenate((moved.step, more.step)),
            np.concatenate((moved.offset, more.offset[1:] + moved.offset[-1])),
            np.concatenate((moved.link, more.link)),
        ),
    )


@dataclass
class _TreeNode:
    """A node of a tree that adds the messages of its children, or copies to them."""

    node: int
    children: list[tuple[_TreeNode, tuple[int, ...]]] = field(default_factory=list)  # with the route between the two

    def routes(self) -> Iterable[tuple[int, ...]]:
        for child, route in self.children:
            yield route
            yield from child.routes()

    @property
    def height(self) -> int:
        return 1 + max((child.height for child, _ in self.children), default=-1)

    def adding(self) -> Iterable[_TreeNode]:
        """The nodes that add."""
        if self.children:
            yield self
        for child, _ in self.children:
            yield from child.adding()


@dataclass(frozen=True)
class _Plan:
    """The trees of a chunk: `up`, along which it is summed; `down`, along which it is copied; either may be a single
    node.

    `start` is the step from which its links are free of earlier chunks.
    """

    up: _TreeNode
    down: _TreeNode
    start: int = 0

    def routes(self) -> list[tuple[int, ...]]:
        return [*self.up.routes(), *self.down.routes()]


class _Trees:
    """One run: the load of links so far, and the chunks' plans."""

    def __init__(self, topology: Topology, collective: Collective, budget: Budget) -> None:
        self.topology, self.collective, self.budget = topology, collective, budget
        self.network = Network(topology, collective)
        self.members = set(collective.members)
        self.seconds = [0.0] * len(topology.links)  # load of each link
        self.into = self._grouped(lambda link: link.dst)
        self.out_of = self._grouped(lambda link: link.src)
        nodes = topology.nodes
        both = [node.id for node in nodes if node.reduces and node.multicast]
        self.meeting_points = both if both and collective.ranks > 1 else [*collective.members]

    def _grouped(self, end: object) -> dict[int, list[Link]]:
        assert callable(end)
        groups: dict[int, list[Link]] = {}
        for link in self.network.links:
            groups.setdefault(end(link), []).append(link)
        return groups

    # --- trees --------------------------------------------------------------------------------------------------------

    def _tree(self, root: int, leaves: Iterable[int], weight: int, summing: bool) -> _TreeNode:
        """A cheap tree from the leaves to the root; its nodes add, or copy, where they can.

        Raises EngineError for a leaf that no path joins to the root.
        """
        wanted = set(leaves) - {root}
        step = self._grown(root, wanted, weight, summing)
        inner: dict[int, list[int]] = {}  # a node of the tree -> its neighbours away from the root
        for node, link in step.items():
            inner.setdefault(link.dst if summing else link.src, []).append(node)
        missing = wanted - step.keys()
        if missing:
            names = [self.topology.nodes[node].name for node in (min(missing), root)]
            raise EngineError(f"engine in_network: no path joins {names[0]} and {names[1]}")
        return _TreeNode(root, self._meeting_at(root, inner, step, summing))

    def _meeting_at(
        self, node: int, inner: dict[int, list[int]], step: dict[int, Link], summing: bool
    ) -> list[tuple[_TreeNode, tuple[int, ...]]]:
        """The adding or copying nodes next to this one in the tree, each with the route; others only forward."""
        found: list[tuple[_TreeNode, tuple[int, ...]]] = []
        for other in inner.get(node, ()):
            beyond = self._meeting_at(other, inner, step, summing)
            hop = (step[other].id,)
            if other in self.members or (len(beyond) > 1 and self._works_at(other, summing)):
                found.append((_TreeNode(other, beyond), hop))
            else:
                found += [(place, route + hop if summing else hop + route) for place, route in beyond]
        return found

    def _grown(self, root: int, leaves: set[int], weight: int, summing: bool) -> dict[int, Link]:
        """Per node of the tree but the root, its link in it.

        The nearest leaf joins the tree, then the leaf nearest to the new tree, and so on (Takahashi and Matsuyama,
        1980). The distance is the cost of the path to the nearest node of the tree that adds or copies.
        """
        cost = {root: 0.0}
        step: dict[int, Link] = {}
        tree: dict[int, Link] = {}
        joined = {root}
        left = set(leaves)
        heap = [(0.0, root)]
        links = self.into if summing else self.out_of
        while heap and left:
            so_far, node = heapq.heappop(heap)
            if so_far > cost[node]:
                continue
            if node in left:
                left.remove(node)
                at = node
                while at not in joined:
                    joined.add(at)
                    tree[at] = step[at]
                    if self._works_at(at, summing):
                        cost[at] = 0.0
                        heapq.heappush(heap, (0.0, at))
                    at = step[at].dst if summing else step[at].src
                continue
            for link in links.get(node, ()):
                other = link.src if summing else link.dst
                there = so_far + self.seconds[link.id] + weight / float(link.bandwidth)
                if other not in joined and there < cost.get(other, np.inf):
                    cost[other] = there
                    step[other] = link
                    heapq.heappush(heap, (there, other))
        return tree

    def _works_at(self, node: int, summing: bool) -> bool:
        """Whether a node of a tree may add (summing) or copy."""
        ability = self.topology.nodes[node]
        return node in self.members or (ability.reduces if summing else ability.multicast)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _plans(self) -> list[_Plan]:
        """The best plan of every chunk, given the load so far."""
        everywhere = [(0.0, 0.0, order) for order in range(len(self.meeting_points))]
        plans: list[_Plan] = []
        for chunk, weight in enumerate(self.collective.chunks.weight.tolist()):
            if self.collective.kind == "all_reduce":
                plan = self._best_of(everywhere, chunk, weight)
            else:
                plan = self._plan(chunk, self._home(chunk), weight)
            added = self._added(plan, weight)
            before = max((self.seconds[link] for link in added), default=0.0)
            plans.append(replace(plan, start=int(before / max(added.values(), default=1.0) + 1e-9)))
            for link, more in added.items():
                self.seconds[link] += more
        return plans

    def _best_of(self, tried: list[tuple[float, float, int]], chunk: int, weight: int) -> _Plan:
        """`tried` is a heap of scores and meeting points. Scores only grow as load grows, so the least one is updated
        repeatedly until it stays the least.
        """
        while True:
            order = tried[0][2]
            plan = self._plan(chunk, self.meeting_points[order], weight)
            now = (*self._busiest(plan, weight), order)
            heapq.heapreplace(tried, now)
            if tried[0] == now:
                return plan

    def _home(self, chunk: int) -> int:
        collective = self.collective
        (rank,) = collective.post(chunk) if collective.combining else collective.pre(chunk)
        return collective.members[rank]

    def _plan(self, chunk: int, home: int, weight: int) -> _Plan:
        if not self.budget.left():
            raise OutOfTimeError(
                f"engine in_network needs more than {self.budget.timeout:g} s; allow more with --timeout"
            )
        collective = self.collective
        up = down = _TreeNode(home)
        if collective.combining:
            up = self._tree(home, (collective.members[rank] for rank in sorted(collective.pre(chunk))), weight, True)
            if len(up.children) == 1 and home not in self.members:  # all meet below: use that node if it also copies
                before = up.children[0][0].node
                if self._works_at(before, summing=False):
                    return self._plan(chunk, before, weight)
        if collective.kind in ("all_reduce", "all_gather", "broadcast"):
            down = self._tree(
                home, (collective.members[rank] for rank in sorted(collective.post(chunk))), weight, False
            )
        return _Plan(up, down)

    def _busiest(self, plan: _Plan, weight: int) -> tuple[float, float]:
        """Seconds of the busiest link with the plan, then of all its links."""
        added = self._added(plan, weight)
        return max((self.seconds[link] + more for link, more in added.items()), default=0.0), sum(added.values())

    def _added(self, plan: _Plan, weight: int) -> dict[int, float]:
        """Seconds that the plan adds to each of its links."""
        added: dict[int, float] = {}
        for route in plan.routes():
            for link in route:
                added[link] = added.get(link, 0.0) + weight / float(self.topology.links[link].bandwidth)
        return added

    # --- the schedule -------------------------------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Plans all chunks and returns them as transfers."""
        plans = self._plans()
        starts = self._starts(plans)
        empty = Schedule(self.topology, self.collective, ValueBuilder().build(), Transfers.of([]))
        agent = {node: number for number, node in reversed([*enumerate(empty.agents)])}
        values = ValueBuilder()
        rows: list[Transfer] = []
        for chunk, (plan, start) in enumerate(zip(plans, starts, strict=True)):
            (holder,) = self.collective.pre(chunk) if not self.collective.combining else (0,)
            whole = values.contribution(chunk, holder)
            if self.collective.combining:
                whole, _ = self._sum(plan.up, chunk, start, values, agent, rows)
            self._copy(plan.down, whole, start + plan.up.height, agent, rows)
        rows.sort(key=lambda row: row.step)
        adding = {place.node for plan in plans for place in plan.up.adding()}
        return replace(
            empty,
            values=values.build(),
            transfers=Transfers.of(rows),
            engine=ENGINE,
            number_format=self._number_format(adding),
        )

    def _sum(
        self, place: _TreeNode, chunk: int, step: int, values: ValueBuilder, agent: dict[int, int], rows: list[Transfer]
    ) -> tuple[int, int]:
        """Adds the rows of a sum; returns the value and the least rank in it. Operands are in rank order."""
        terms: list[tuple[int, int, _TreeNode | None, tuple[int, ...]]] = []
        if place.node in self.members:
            rank = agent[place.node]
            terms.append((rank, values.contribution(chunk, rank), None, ()))
        for child, route in place.children:
            value, least = self._sum(child, chunk, step, values, agent, rows)
            terms.append((least, value, child, route))
        terms.sort(key=lambda term: term[0])
        total = values.sum([value for _, value, _, _ in terms]) if len(terms) > 1 else terms[0][1]
        for _, value, other, route in terms:
            if other is not None:
                ends = agent[other.node], agent[place.node]
                rows.append(Transfer(value, total, *ends, step + other.height, route))
        return total, terms[0][0]

    def _copy(self, place: _TreeNode, value: int, step: int, agent: dict[int, int], rows: list[Transfer]) -> None:
        for child, route in place.children:
            rows.append(Transfer(value, value, agent[place.node], agent[child.node], step, route))
            self._copy(child, value, step + 1, agent, rows)

    def _starts(self, plans: list[_Plan]) -> list[int]:
        """The first step of every chunk, late enough that no switch holds more sums at once than it has slots."""
        kept: dict[int, list[tuple[int, int]]] = {}  # switch with slots -> from which step until which it holds sums
        starts = []
        for plan in plans:
            start = plan.start
            sums = [(*found, slots) for found in self._held(plan.up) if (slots := self._slots(found[0])) is not None]
            while any(
                sum(first < end + start and begin + start < last for first, last in kept.get(node, ())) >= slots
                for node, begin, end, slots in sums
            ):
                start += 1
            for node, begin, end, _ in sums:
                kept.setdefault(node, []).append((begin + start, end + start))
            starts.append(start)
        return starts

    def _held(self, place: _TreeNode) -> Iterable[tuple[int, int, int]]:
        """(node, first step, end) of every sum below a node; a sum leaves at the step of its height."""
        for one in place.adding():
            first = min(child.height for child, _ in one.children)
            yield one.node, first, max(one.height, first + 1)

    def _slots(self, node: int) -> int | None:
        aggregator = self.topology.nodes[node].aggregator
        return None if aggregator is None else aggregator.slots

    def _number_format(self, adding: set[int]) -> str:
        """The first format of the first switch that all have. Raises EngineError if there is none."""
        chosen = [(node, node.aggregator) for node in self.topology.nodes if node.id in adding and node.aggregator]
        if not chosen:
            return ""
        first, aggregator = chosen[0]
        for number_format in aggregator.formats:
            if all(number_format in other.formats for _, other in chosen):
                return number_format
        raise EngineError(
            "engine in_network: the switches have no number format in common: "
            f"{first.name} ({aggregator.name}) adds {', '.join(aggregator.formats)}, others do not"
        )

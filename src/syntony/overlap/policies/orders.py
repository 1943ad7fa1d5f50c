"""Orders of lanes: how urgent every Op is, and the static order that comes of it.

urgency    fifo: all alike, so that the first ready goes first       need: the sooner its next use, the sooner
           critical: the longer the way from it to the end           by_class: kind by kind, then fifo
           staggered: critical, and microbatches begin one after another
listed     one simulation in which lanes choose for themselves; what they did in a steady step is the order
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from syntony import _solve
from syntony.overlap.predict.simulation import columns_of
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph, in_turn
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.plan import Lane

Urgency = Mapping[str, float]  # by name; the lower, the sooner
Orders = Mapping[Lane, tuple[str, ...]]
Rule = Callable[[Graph, Cost], Urgency]


def fifo(graph: Graph, cost: Cost) -> Urgency:
    """The first that is ready."""
    return {}


def need(graph: Graph, cost: Cost) -> Urgency:
    """By how many Ops their device computes before something waits for it: sums for early layers go before others."""
    place: dict[str, int] = {}
    count: dict[int, int] = {}
    for op in graph:
        if _fixed(op):
            place[op.name] = count[op.device] = count.get(op.device, 0) + 1
    after = _followers(graph)
    known: dict[str, float] = {}

    def urgency(name: str) -> float:
        if name not in known:
            known[name] = float("inf")
            device = graph[name].device
            for follower, lag in after.get(name, ()):
                at = place.get(follower) or urgency(follower)
                known[name] = min(known[name], at + lag * count.get(device, 0))
        return known[name]

    return {op.name: min(urgency(op.name), 1e15) for op in graph if not _fixed(op)}


def critical(graph: Graph, cost: Cost) -> Urgency:
    """By the longest way in seconds to the end of the next step (upward rank); the longest first."""
    after = _followers(graph)
    previous: dict[int, str] = {}
    for op in graph:
        if _fixed(op):
            if op.device in previous:
                after.setdefault(previous[op.device], []).append((op.name, 0))
            previous[op.device] = op.name
    return {name: -way for name, way in _ways(graph, cost, after, steps=2).items()}


def staggered(share: float) -> Rule:
    """By the longest way to the end, where computing has no order either; a microbatch follows the one before it by
    this share of the longest way of all. With 0 they would go side by side, with 1 one after another."""

    def rule(graph: Graph, cost: Cost) -> Urgency:
        ways = _ways(graph, cost, _followers(graph), steps=1)
        apart = share * max(ways.values())
        return {op.name: apart * max(op.microbatch, 0) - ways[op.name] for op in graph}

    return rule


def _ways(graph: Graph, cost: Cost, after: Mapping[str, Sequence[tuple[str, int]]], steps: int) -> dict[str, float]:
    """Seconds of the longest way from each Op to the end of so many steps."""
    seconds, latency = cost.seconds(graph)
    took = {op.name: seconds[row] + latency[row] for row, op in enumerate(graph)}
    before: dict[str, list[str]] = {name: [] for name in took}
    for name, others in after.items():
        for other, lag in others:
            before[other] += [] if lag else [name]
    order = in_turn(before)
    rank: dict[str, float] = {}
    for _ in range(steps):  # the last step, then the one before it
        next_step, rank = rank, {}
        for name in reversed(order):
            ways = [next_step.get(other, 0.0) if lag else rank[other] for other, lag in after.get(name, ())]
            rank[name] = took[name] + max(ways, default=0.0)
    return rank


def by_class(*kinds: Kind) -> Rule:
    """These kinds first, in this order; within a kind by `need`."""

    def rule(graph: Graph, cost: Cost) -> Urgency:
        within = need(graph, cost)
        classes = {kind: number for number, kind in enumerate(kinds)}
        return {op.name: 1e15 * classes.get(op.kind, len(kinds)) + min(within.get(op.name, 0.0), 1e14) for op in graph}

    return rule


def in_order(graph: Graph) -> Orders:
    """Every lane as the graph has it."""
    orders: dict[Lane, list[str]] = {}
    for op in graph:
        orders.setdefault((op.device, op.lane), []).append(op.name)
    return {lane: tuple(names) for lane, names in orders.items()}


def listed(
    graph: Graph,
    cost: Cost,
    urgency: Urgency,
    priorities: Mapping[str, int] | None = None,
    movable: Collection[Kind] = (Kind.OPTIMIZE, Kind.NORM),
) -> Orders:
    """The order of a steady step in which every lane takes the most urgent Op that is ready.

    movable    kinds of computing that come whenever they can; all others keep the graph's order
    """
    orders = in_order(graph)
    lanes = {op.lane for op in graph if op.kind.moves}
    loose = [op.name for op in graph if op.kind in movable]
    asked = dict(urgency)
    if loose:
        # What is not movable follows one another, and gives way to updates, but not to what could be done later.
        lanes.add(COMPUTE)
        kept = [op.name for op in graph if op.lane == COMPUTE and op.kind not in movable]
        asked |= dict.fromkeys(kept, 0.0)
        if kept:
            sooner = {name: urgency.get(name, 0.0) - 1e16 for name in loose}
            asked |= {name: 1.0 if graph[name].kind is Kind.RECOMPUTE else at for name, at in sooner.items()}
    columns = columns_of(graph.with_ops(_chained(graph, movable)), cost, orders, {}, priorities or {}, asked, lanes)
    times = _solve.simulate_steps(**columns, steps=5)
    launch, ready, end = (times[column].reshape(5, -1)[3] for column in ("launch", "ready", "end"))
    rows = {op.name: row for row, op in enumerate(graph)}
    found = {}
    for lane, names in orders.items():
        order = sorted(names, key=lambda name: launch[rows[name]])
        if lane[1] != COMPUTE:
            # What is more urgent, and was there soon after another had begun, goes before it.
            for i in range(1, len(order)):
                for j in range(i, 0, -1):
                    first, second = rows[order[j - 1]], rows[order[j]]
                    soon = launch[first] + (end[first] - launch[first]) / 50
                    if asked.get(order[j], 0.0) >= asked.get(order[j - 1], 0.0) or ready[second] > soon:
                        break
                    order[j - 1 : j + 1] = order[j], order[j - 1]
        found[lane] = tuple(order)
    return found


def _fixed(op: Op) -> bool:
    return op.lane == COMPUTE and op.kind not in (Kind.OPTIMIZE, Kind.NORM)


def _chained(graph: Graph, movable: Collection[Kind]) -> Iterator[Op]:
    previous: dict[int, str] = {}
    for op in graph:
        if op.lane != COMPUTE or op.kind in movable:
            yield op
            continue
        before = previous.get(op.device)
        yield op if before is None else op._replace(deps=(*op.deps, before))
        previous[op.device] = op.name


def _followers(graph: Graph) -> dict[str, list[tuple[str, int]]]:
    """By name: who waits for it, and how many steps later. A message's receiver waits for its sender."""
    after: dict[str, list[tuple[str, int]]] = {}
    for op in graph:
        for lag, names in enumerate((op.deps, op.lagged)):
            for name in names:
                after.setdefault(name, []).append((op.name, lag))
        if op.kind is Kind.RECV:
            after.setdefault(f"send{op.name[4:]}", []).append((op.name, 0))
    return after

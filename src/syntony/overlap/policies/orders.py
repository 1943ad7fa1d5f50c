"""Orders of lanes: the urgency of every Op, and the static order derived from it.

urgency    fifo: all equal, so the first ready goes first            need: the sooner its next use, the sooner
           critical: the longer the path from it to the end          by_class: kind by kind, then fifo
           staggered: critical, and microbatches begin one after another
listed     one simulation in which lanes choose for themselves; their choices in a steady step are the order
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from syntony.base.command import UserError
from syntony.overlap.predict.sim_step import simulate_sim_step
from syntony.overlap.predict.simulation import sim_step_of
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph, in_turn
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Lane

Urgency = Mapping[OpKey, float]  # by key; the lower, the sooner
Orders = Mapping[Lane, tuple[OpKey, ...]]
Rule = Callable[[Graph, Cost], Urgency]


def fifo(graph: Graph, cost: Cost) -> Urgency:
    """All equal: the first that is ready goes first."""
    return {}


def need(graph: Graph, cost: Cost) -> Urgency:
    """By the number of Ops that their device computes before something waits for them: early layers' sums go first."""
    place: dict[OpKey, int] = {}
    count: dict[int, int] = {}
    for op in graph:
        if _fixed(op):
            place[op.key] = count[op.device] = count.get(op.device, 0) + 1
    after = _followers(graph)
    known: dict[OpKey, float] = {}

    def urgency(key: OpKey) -> float:
        if key not in known:
            known[key] = float("inf")
            device = graph[key].device
            for follower, lag in after.get(key, ()):
                at = place.get(follower) or urgency(follower)
                known[key] = min(known[key], at + lag * count.get(device, 0))
        return known[key]

    return {op.key: min(urgency(op.key), 1e15) for op in graph if not _fixed(op)}


def critical(graph: Graph, cost: Cost) -> Urgency:
    """By the longest path in seconds to the end of the next step (upward rank); the longest first."""
    after = _followers(graph)
    previous: dict[int, OpKey] = {}
    for op in graph:
        if _fixed(op):
            if op.device in previous:
                after.setdefault(previous[op.device], []).append((op.key, 0))
            previous[op.device] = op.key
    return {key: -way for key, way in _ways(graph, cost, after, steps=2).items()}


STAGGERS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Delays of each microbatch after the last, as shares of its path, of which the best is used."""


def staggered(share: float) -> Rule:
    """By the longest path to the end, including computation; each microbatch lags the previous one by this share of the
    longest path. With 0 they run side by side, with 1 one after another."""

    def rule(graph: Graph, cost: Cost) -> Urgency:
        ways = _ways(graph, cost, _followers(graph), steps=1)
        apart = share * max(ways.values())
        return {op.key: apart * max(op.microbatch, 0) - ways[op.key] for op in graph}

    return rule


def _ways(
    graph: Graph, cost: Cost, after: Mapping[OpKey, Sequence[tuple[OpKey, int]]], steps: int
) -> dict[OpKey, float]:
    """Seconds of the longest path from each Op to the end of `steps` steps."""
    seconds, latency = cost.seconds(graph)
    took = {op.key: seconds[row] + latency[row] for row, op in enumerate(graph)}
    before: dict[OpKey, list[OpKey]] = {key: [] for key in took}
    for key, others in after.items():
        for other, lag in others:
            before[other] += [] if lag else [key]
    order = in_turn(before)
    rank: dict[OpKey, float] = {}
    for _ in range(steps):  # the last step, then the one before it
        next_step, rank = rank, {}
        for key in reversed(order):
            ways = [next_step.get(other, 0.0) if lag else rank[other] for other, lag in after.get(key, ())]
            rank[key] = took[key] + max(ways, default=0.0)
    return rank


def by_class(*kinds: Kind) -> Rule:
    """These kinds first, in this order; within a kind by `need`."""

    def rule(graph: Graph, cost: Cost) -> Urgency:
        within = need(graph, cost)
        classes = {kind: number for number, kind in enumerate(kinds)}
        return {op.key: 1e15 * classes.get(op.kind, len(kinds)) + min(within.get(op.key, 0.0), 1e14) for op in graph}

    return rule


def in_order(graph: Graph) -> Orders:
    """Every lane in the graph's order."""
    orders: dict[Lane, list[OpKey]] = {}
    for op in graph:
        orders.setdefault((op.device, op.lane), []).append(op.key)
    return {lane: tuple(keys) for lane, keys in orders.items()}


def meeting(graph: Graph, orders: Orders) -> Orders:
    """The same orders, but both devices of a layer (Layout.copies) have one order of its sums and gathers: that of the
    device in the first half of the pipeline. Raises UserError if their Ops differ."""
    if graph.layout is None or graph.layout.copies == 1:
        return orders
    found = dict(orders)
    for (device, lane), keys in orders.items():
        other = graph.layout.pp - 1 - device
        if lane == "dp" and device < other:
            found[other, lane] = tuple(key.twin for key in keys)
            if set(found[other, lane]) != set(orders[other, lane]):
                raise UserError(f"the policy cuts what devices {device} and {other} sum together in different ways")
    return found


def listed(
    graph: Graph,
    cost: Cost,
    urgency: Urgency,
    priorities: Mapping[str, int] | None = None,
    movable: Collection[Kind] = (Kind.OPTIMIZE, Kind.NORM),
    windows: Mapping[str, int] | None = None,
) -> Orders:
    """The order of a steady step in which every lane takes the most urgent Op that is ready.

    windows    bytes that may be in flight on a lane: later launches are decided later
    movable    kinds of computation that may be reordered; all others keep the graph's order
    """
    orders = in_order(graph)
    lanes = {op.lane for op in graph if op.kind.moves}
    loose = [op.key for op in graph if op.kind in movable]
    asked = dict(urgency)
    if loose:
        # Ops that are not movable keep their order, and give way to updates, but not to work that can be postponed.
        lanes.add(COMPUTE)
        kept = [op.key for op in graph if op.lane == COMPUTE and op.kind not in movable]
        asked |= dict.fromkeys(kept, 0.0)
        if kept:
            sooner = {key: urgency.get(key, 0.0) - 1e16 for key in loose}
            asked |= {key: 1.0 if graph[key].kind is Kind.RECOMPUTE else at for key, at in sooner.items()}
    step = sim_step_of(
        graph.with_ops(_chained(graph, movable)), cost, orders, windows or {}, priorities or {}, asked, lanes
    )
    times = simulate_sim_step(step, 5)
    launch, ready, end = (column[3] for column in (times.launch, times.ready, times.end))
    rows = {op.key: row for row, op in enumerate(graph)}
    found = {}
    for lane, keys in orders.items():
        order = sorted(keys, key=lambda key: launch[rows[key]])
        if lane[1] != COMPUTE:
            # A more urgent Op that became ready soon after another had begun goes before it.
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
    previous: dict[int, OpKey] = {}
    for op in graph:
        if op.lane != COMPUTE or op.kind in movable:
            yield op
            continue
        before = previous.get(op.device)
        yield op if before is None else op._replace(deps=(*op.deps, before))
        previous[op.device] = op.key


def _followers(graph: Graph) -> dict[OpKey, list[tuple[OpKey, int]]]:
    """By key: the Ops that wait for it, and how many steps later. A message's receiver waits for its sender."""
    after: dict[OpKey, list[tuple[OpKey, int]]] = {}
    for op in graph:
        for lag, keys in enumerate((op.deps, op.lagged)):
            for key in keys:
                after.setdefault(key, []).append((op.key, lag))
        if op.kind is Kind.RECV:
            after.setdefault(op.key.sender, []).append((op.key, 0))
    return after

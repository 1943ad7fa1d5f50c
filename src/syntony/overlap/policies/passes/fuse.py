"""Joins sums of gradients (and gathers of weights), so that fewer of them pay a start-up latency.

reduce.5  reduce.4  reduce.3  reduce.2          reduce.5+4          reduce.3+2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import chain, repeat

from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey

_TRIALS = 32


def fuse(graph: Graph, *caps: float) -> Graph:
    """Joins neighbours of one lane, in the order of the graph, up to caps[0] bytes, the next up to caps[1], .. the last
    cap repeats. As with buckets of torch's DDP, a union closes with the Op that fills it."""

    def groups(row: Sequence[Op]) -> Iterator[Sequence[Op]]:
        limits = chain(caps, repeat(caps[-1]))
        cap, found, size = next(limits), list[Op](), 0.0
        for op in row:
            found.append(op)
            size += op.amount
            if size >= cap:
                yield found
                cap, found, size = next(limits), [], 0.0
        yield found

    return _joined(graph, [group for row in _rows(graph) for group in groups(row)])


def fuse_best(graph: Graph, cost: Cost, seconds: Callable[[Graph], float]) -> Graph:
    """The unions that make a step shortest according to `seconds`, which takes the order into account.

    It starts from no unions, and from those whose last one ends first if each starts when it is ready (_first_come).
    Then each border between two neighbours is opened or closed if that makes the step shorter, those needed first
    before the rest, as long as something improves and at most _TRIALS steps have been simulated.
    """
    rows = [row for row in _rows(graph) if not any(op.kind is Kind.ALL_GATHER for op in row)]
    borders = [(number, at) for number, row in enumerate(rows) for at in range(len(row) - 1, 0, -1)]

    def joined(closed: Set[tuple[int, int]]) -> Graph:
        groups: list[list[Op]] = []
        for number, row in enumerate(rows):
            for at, op in enumerate(row):
                if at and (number, at) in closed:
                    groups[-1].append(op)
                else:
                    groups.append([op])
        return _joined(graph, groups)

    begin = [frozenset[tuple[int, int]](), _first_come(graph, cost, rows)]
    found = [(seconds(joined(closed)), place, closed) for place, closed in enumerate(begin)]
    least, _, closed = min(found)
    trials, better = len(found), True
    while better:
        better = False
        for border in borders:
            if trials >= _TRIALS:
                return joined(closed)
            other, trials = closed ^ {border}, trials + 1
            took = seconds(joined(other))
            if took < least * (1 - 1e-9):
                least, closed, better = took, other, True
    return joined(closed)


def _first_come(graph: Graph, cost: Cost, rows: Sequence[Sequence[Op]]) -> frozenset[tuple[int, int]]:
    """Closed borders (row, place), by dynamic programming over the times at which gradients are ready, as in MG-WFBP
    (Shi et al., INFOCOM 2019):  ended(i) = min over j < i of max(ended(j), there(i)) + alpha + beta (bytes j..i)."""
    seconds, latency = cost.seconds(graph)
    row_of = {op.key: row for row, op in enumerate(graph)}
    clock: dict[int, float] = {}
    there: dict[OpKey, float] = {}
    for op in graph:
        if op.lane == COMPUTE:
            clock[op.device] = there[op.key] = clock.get(op.device, 0.0) + seconds[row_of[op.key]]
    closed: set[tuple[int, int]] = set()
    for number, row in enumerate(rows):
        ready = [max(there.get(dep, 0.0) for dep in op.deps) for op in row]
        took, wait = [seconds[row_of[op.key]] for op in row], latency[row_of[row[0].key]]
        ended, cuts = [0.0], [0]
        for i in range(1, len(row) + 1):
            total, best = 0.0, (float("inf"), 0)
            for j in range(i - 1, -1, -1):
                total += took[j]
                best = min(best, (max(ended[j], ready[i - 1]) + wait + total, j))
            ended.append(best[0])
            cuts.append(best[1])
        end = len(row)
        while end:
            closed |= {(number, at) for at in range(cuts[end] + 1, end)}
            end = cuts[end]
    return frozenset(closed)


def _rows(graph: Graph) -> list[list[Op]]:
    """The candidates for joining: same device, lane and kind, once a step."""
    rows: dict[tuple[int, str, str], list[Op]] = {}
    for op in graph:
        if op.pieces and op.microbatch < 0 and op.key.kind in ("reduce", "gather"):
            rows.setdefault((op.device, op.lane, op.kind), []).append(op)
    return list(rows.values())


def _joined(graph: Graph, groups: Sequence[Sequence[Op]]) -> Graph:
    union: dict[OpKey, Op] = {}
    for group in groups:
        if len(group) < 2:
            continue
        whole = group[0]._replace(
            key=OpKey.union(op.key for op in group),
            amount=sum(op.amount for op in group),
            layer=-1,
            pieces=tuple(piece for op in group for piece in op.pieces),
            of=tuple(source for op in group for source in op.sources),
            holds=sum(op.holds for op in group),
            frees=sum(op.frees for op in group),
        )
        union |= {op.key: whole for op in group}
    last = {whole.key: source for source, whole in union.items()}

    def edges(keys: Sequence[OpKey]) -> tuple[OpKey, ...]:
        return tuple(dict.fromkeys(union[key].key if key in union else key for key in keys))

    def rewired() -> Iterator[Op]:
        members: dict[OpKey, list[Op]] = {}
        for op in graph:
            whole = union.get(op.key)
            if whole is None:
                yield op._replace(deps=edges(op.deps), lagged=edges(op.lagged))
                continue
            members.setdefault(whole.key, []).append(op)
            if last[whole.key] == op.key:
                yield whole._replace(
                    deps=edges([dep for one in members[whole.key] for dep in one.deps]),
                    lagged=edges([dep for one in members[whole.key] for dep in one.lagged]),
                )

    return graph.with_ops(rewired())

"""Lays out or orders the same model and batch differently: passes that regenerate the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate, times_of
from syntony.overlap.step.graph import Graph, in_turn
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import FORWARD
from syntony.overlap.step.pipelines.chunks import chunks_of
from syntony.overlap.step.pipelines.pipelines import pipeline
from syntony.overlap.step.pipelines.tasks import Pipeline, Task, Times


def layout_of(graph: Graph) -> Layout:
    if graph.layout is None:
        raise UserError("this graph was recorded elsewhere, without a layout; only generated ones can be laid out anew")
    return graph.layout


def loop_stages(graph: Graph, loops: int) -> Graph:
    """Every device gets `loops` chunks of layers, and each chunk takes all microbatches before the next (breadth
    first): its weights are gathered and its gradients summed once, beside the computation of the other chunks."""
    layout = layout_of(graph)
    loops = min(loops, len(graph.layers) // layout.pp)
    return generate(graph.layers, replace(layout, schedule="breadth_first", loops=loops))


def split_reduce(graph: Graph) -> Graph:
    """Replaces all_reduce by reduce_scatter, an optimizer for each rank's shard, and all_gather: sharding level 1."""
    layout = layout_of(graph)
    return graph if layout.zero else generate(graph.layers, replace(layout, zero=1))


def after_backward(graph: Graph) -> Graph:
    """Sums of gradients wait for everything that their device computes before updates."""
    last = {op.device: op.key for op in graph if op.lane == COMPUTE and op.microbatch >= 0}

    def held(op: Op) -> Op:
        waits = op.microbatch < 0 and op.kind.moves and last[op.device] not in op.deps
        return op._replace(deps=(*op.deps, last[op.device])) if waits else op

    return graph.with_ops(map(held, graph))


def pipelined(graph: Graph, what: str) -> None:
    """Raises UserError unless the step has a pipeline."""
    if layout_of(graph).pp == 1:
        raise UserError(f"{what} orders a pipeline, and this step has pp=1")


def unordered(graph: Graph, what: str) -> None:
    """Raises UserError if the step has an order of its own: of a pipeline, or of recomputation."""
    if layout_of(graph).pp > 1 or layout_of(graph).recompute:
        raise UserError(f"{what} orders steps with pp=1 and recompute=false")


def reorder_pipeline(graph: Graph, schedule: str, cost: Cost | None = None, apart: bool = False) -> Graph:
    """The pipeline in another schedule; with a cost, a searched schedule knows the times of its tasks and messages.
    `apart` as for `generate`."""
    pipelined(graph, schedule)
    layout = replace(layout_of(graph), schedule=schedule, loops=1)
    if cost is None:
        return generate(graph.layers, layout, apart=apart)
    found = pipeline(schedule, layout.pp, 1, layout.microbatches, measured_times(graph, cost, layout))
    return generate(graph.layers, layout, found, apart=apart)


def measured_times(graph: Graph, cost: Cost, layout: Layout) -> Times:
    """The times of an average chunk's tasks and of a message by this cost."""
    seconds, latency = cost.seconds(graph)
    chunks = layout.pp * layout.chunks
    total = dict.fromkeys(Kind, 0.0)
    for op, took in zip(graph, seconds, strict=True):
        total[op.kind] += took
    share = times_of(graph.layers)
    both = total[Kind.BACKWARD] / (share.inputs + share.weights)
    each = chunks * layout.microbatches
    messages = [took + wait for op, took, wait in zip(graph, seconds, latency, strict=True) if op.kind is Kind.SEND]
    # Collectives inside layers block the device like computation.
    inside = sum(seconds[row] for row, op in enumerate(graph) if op.kind.moves and op.microbatch >= 0 and op.peer < 0)
    return Times(
        (total[Kind.FORWARD] + inside / 2) / each,
        (both * share.inputs + total[Kind.BACKWARD_INPUT] + total[Kind.RECOMPUTE] + inside / 2) / each,
        (both * share.weights + total[Kind.BACKWARD_WEIGHT]) / each,
        sum(messages) / len(messages) if messages else 0.0,
    )


def side_by_side(graph: Graph, count: int) -> Graph:
    """`count` microbatches at a time go through the layers together: one computes while another communicates."""
    layout = layout_of(graph)
    if layout.microbatches % count:
        raise UserError(
            f"microbatches={layout.microbatches}; it must be a multiple of {count}, to run {count} together"
        )
    if layout.pp == 1:
        groups = [range(first, first + count) for first in range(0, layout.microbatches, count)]
        return _dealt(graph, [[Task(kind, 0, i) for i in group] for group in groups for kind in "FB"])
    if layout.schedule != "breadth_first":
        graph = loop_stages(graph, layout.loops)
    return zipped(graph, count, across=False)


def forward_beside_backward(graph: Graph, count: int = 1) -> Graph:
    """The forward of one microbatch and the backward of another take turns, segment by segment: one computes while the
    other communicates. With pipelines in a V that is DualPipe's order. On one device, `count` of each."""
    layout = layout_of(graph)
    if layout.pp > 1:
        return zipped(reorder_pipeline(graph, "dualpipe_v", apart=True), 2, across=True)
    if layout.microbatches % count:
        raise UserError(
            f"microbatches={layout.microbatches}; it must be a multiple of {count}, to run {count} together"
        )
    groups = [range(first, first + count) for first in range(0, layout.microbatches, count)]
    forward, backward = ([[Task(kind, 0, i) for i in group] for group in groups] for kind in "FB")
    between = [[*ahead, *behind] for ahead, behind in zip(forward[1:], backward[:-1], strict=True)]
    return _dealt(graph, [forward[0], *between, backward[-1]], apart=True)


def first_come(graph: Graph, cost: Cost, rule: orders.Rule) -> Graph:
    """Orders computation by list scheduling: a free device takes the most urgent ready Op of any microbatch."""
    kinds = {op.kind for op in graph if op.lane == COMPUTE}
    found = orders.listed(graph, cost, rule(graph, cost), movable=kinds)
    before = {op.key: list(op.deps) for op in graph}
    for (_, lane), keys in found.items():
        for first, second in pairwise(keys if lane == COMPUTE else ()):
            before[second].append(first)
    return graph.with_ops(graph[key] for key in in_turn(before))


def _dealt(graph: Graph, hands: Sequence[Sequence[Task]], apart: bool = False) -> Graph:
    """The step on one device, in groups of tasks; the tasks of a group are interleaved. `apart` as for `generate`."""
    layout = layout_of(graph)
    tasks = tuple(task for hand in hands for task in hand)
    graph = generate(graph.layers, layout, Pipeline((0,), layout.microbatches, (tasks,)), apart=apart)
    rows: dict[tuple[bool, int], list[int]] = {}  # of each task; updates come last, and stay last
    for row, op in enumerate(graph):
        rows.setdefault((_is_forward(op), op.microbatch), []).append(row)
    dealt = [[rows.pop((task.kind == "F", task.microbatch)) for task in hand] for hand in hands]
    order = [row for hand in dealt for row in _shuffled(graph, hand)] + [row for left in rows.values() for row in left]
    return graph.with_ops(graph.ops[row] for row in order)


def parts_in_turn(graph: Graph) -> Graph:
    """Parts of microbatches (passes/cut.py) go through the layers side by side, like whole ones in `side_by_side`."""
    ops: list[Op] = []
    hands: dict[tuple[int, ...], list[int]] = {}

    def flush() -> None:
        ops.extend(graph.ops[row] for row in _shuffled(graph, list(hands.values())))
        hands.clear()

    task = None
    for row, op in enumerate(graph):
        own = (op.device, _is_forward(op), op.microbatch)
        cut = op.key.part and not op.pieces
        if not cut or own != task:
            flush()
        if cut:
            task = own
            hands.setdefault(op.key.part[-1:], []).append(row)
        else:
            ops.append(op)
    flush()
    return graph.with_ops(ops)


def zipped(graph: Graph, count: int, across: bool) -> Graph:
    """Interleaves neighbouring tasks of a device: `count` of one direction, or (`across`) a forward and the backward
    behind it."""
    ops = []
    for device in graph.devices:
        tasks: list[tuple[tuple[bool, int, int], list[int]]] = []
        rows = [row for row, op in enumerate(graph) if op.device == device]
        chunk = _chunks(graph)
        for row in rows:
            op = graph.ops[row]
            key = (_is_forward(op), chunk.get(op.layer, -1), op.microbatch)
            if not tasks or tasks[-1][0] != key:
                tasks.append((key, []))
            tasks[-1][1].append(row)
        at = 0
        while at < len(tasks):
            hand = [tasks[at]]
            while len(hand) < count and at + len(hand) < len(tasks):
                (other, their, number), first = tasks[at + len(hand)][0], hand[-1][0]
                alike = (other, their) == first[:2] if not across else first[0] and not other
                if number < 0 or first[2] < 0 or number == first[2] or not alike:
                    break
                hand.append(tasks[at + len(hand)])
            at += len(hand)
            ops += [graph.ops[row] for row in _shuffled(graph, [rows for _, rows in hand])]
    return graph.with_ops(ops)


def _is_forward(op: Op) -> bool:
    """Whether it computes or communicates in the forward pass."""
    return op.kind is Kind.FORWARD or op.key.direction == FORWARD


def _chunks(graph: Graph) -> dict[int, int]:
    layout = layout_of(graph)
    members = chunks_of(graph.layers, layout)
    return {layer: chunk for chunk, layers in enumerate(members) for layer in layers}


def _shuffled(graph: Graph, tasks: list[list[int]]) -> list[int]:
    """All rows, each task in its order, evenly; a task gives way to the other only where it communicates. Gathered
    weights are for both."""
    cards: list[list[list[int]]] = []
    for rows in tasks:
        deck: list[list[int]] = [[]]
        for row in rows:
            deck[-1].append(row)
            if graph.ops[row].kind.moves and not graph.ops[row].pieces:
                deck.append([])
        cards.append([card for card in deck if card])
    keyed = [((i + 0.5) / len(deck), hand, card) for hand, deck in enumerate(cards) for i, card in enumerate(deck)]
    return [row for _, _, card in sorted(keyed) for row in card]

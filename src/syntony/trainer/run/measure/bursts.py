"""Measures the links of lanes while nobody computes.

    alone    [op]                          alpha + fixed + beta x bytes
    bursts   [op][op][op]                  alpha + N x (fixed + beta x bytes)
             [  op  ][  op  ][  op  ]      of two sizes

In a step, ops wait for ranks that compute longer than others, so their times say little about the wire. Here all begin
together. Policies that keep a link busy need its occupation per op, not the duration of a single op.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from syntony.overlap.policies.orders import in_order
from syntony.overlap.policies.passes.loop import can_loop
from syntony.overlap.run.plan_runner import PlanRunner, Record
from syntony.overlap.step.cost import Linear
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind, Op, Piece
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.shards import LANE
from syntony.trainer.run.rank import Rank, World

SIZES = (64 << 10, 1 << 20)  # bytes
EACH = 6  # ops of each size
_TIMES = 3  # the first is not counted
_SUMS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)


def links(rank: Rank, step: Graph) -> dict[tuple[str, Kind], Linear]:
    """By lane and kind of the step's communication, or what a policy may make of it. Same on all ranks. Collective."""
    wanted: dict[tuple[str, Kind], bool] = {}  # whether they sum gradients, or gather weights
    for op in step:
        if op.kind.moves:
            kinds = _SUMS if op.pieces and op.lane != "tp" else (op.kind,)
            wanted |= {(op.lane, kind): bool(op.pieces) for kind in kinds}
    if can_loop(step):
        wanted[LANE, Kind.SHIFT] = False
    if any(layer.moved for layer in step.layers):
        wanted |= {("ep", kind): True for kind in _SUMS}
    graph = Graph(
        tuple(
            op
            for number, ((lane, kind), sums) in enumerate(wanted.items())
            for op in _ops(rank, number, lane, kind, sums)
        )
    )
    plan = Plan("bursts", graph, in_order(graph))
    groups = rank.world.groups(plan)
    device, mine = rank.mesh.place["pp"], list[tuple[str, Kind, Linear]]()
    with PlanRunner(plan, device, groups, canonical=rank.config.run.canonical) as runner:
        for time in range(_TIMES):
            runner.begin_step()
            for lane, kind in wanted:
                if lane not in groups or kind is Kind.RECV:  # measured together with the send
                    continue
                together = (Kind.SEND, Kind.RECV) if kind is Kind.SEND else (kind,)
                chosen = [op for op in graph if (op.device, op.lane) == (device, lane) and op.kind in together]
                records = _run(runner, chosen, groups[lane], rank.world)
                if time and records:
                    mine.append((lane, kind, _fit(graph, records)))
    found: dict[tuple[str, Kind], list[list[float]]] = defaultdict(list)
    for blob in rank.world.gather(json.dumps(mine).encode()):
        for lane, kind, line in json.loads(blob):
            for one in (Kind.SEND, Kind.RECV) if kind == Kind.SEND else (Kind(kind),):
                found[lane, one].append(line)
    return {key: Linear(*(median(part) for part in zip(*seen, strict=True))) for key, seen in found.items()}


def _ops(rank: Rank, row: int, lane: str, kind: Kind, sums: bool) -> Iterator[Op]:
    """One alone, then a burst of each size (`segment` is the index); for messages, one to the next stage and one from
    the previous stage."""
    stages, unit = rank.mesh.size("pp"), 256 * max(1, rank.mesh.size(lane))
    bursts = [0, *(burst for burst in range(1, 1 + len(SIZES)) for _ in range(EACH))]
    for device in range(stages):
        before, after = (device - 1) % stages, (device + 1) % stages
        peer = {Kind.SEND: after, Kind.RECV: before}.get(kind, -1)
        sender = before if kind is Kind.RECV else device  # both ends of a message are named after it
        for number, burst in enumerate(bursts):
            size = SIZES[max(0, burst - 1)] // unit * unit or unit
            pieces = (Piece(0, 0, size),) if sums else ()
            key = OpKey(kind, sender, number, -1 if peer >= 0 else row)
            yield Op(key, kind, device, lane, size, segment=burst, peer=peer, pieces=pieces)


def _run(runner: PlanRunner, ops: list[Op], group: dist.ProcessGroup, world: World) -> list[Record]:
    """Runs the first op alone, then the others at once, size by size."""
    runner.records()
    given = [(op, _given(op, group.size(), group.rank())) for op in ops]
    for burst in range(1 + len(SIZES)):
        world.meet()  # all begin together
        chosen = [(op.key, tensors) for op, tensors in given if op.segment == burst]
        for key, tensors in chosen:
            runner.ready(key, *tensors)
        for key, _ in chosen:
            runner.wait(key)
    return [record for record in runner.records() if runner.plan.graph[record.key].kind is not Kind.SEND]


def _given(op: Op, ranks: int, place: int) -> tuple[Any, ...]:
    """The arguments of PlanRunner.ready."""
    whole = torch.zeros(int(op.amount) // 4)
    part = whole.view(ranks, -1)[place]
    if op.kind is Kind.ALL_REDUCE:
        return whole, part
    if op.kind is Kind.REDUCE_SCATTER:
        return whole, part.clone()
    if op.kind is Kind.ALL_GATHER:
        return part.clone(), whole
    if op.kind is Kind.SHIFT:  # all rows go to the next rank
        rows = ([len(whole) * (rank == (place + by) % ranks) for rank in range(ranks)] for by in (1, -1))
        return whole, torch.empty_like(whole), *rows
    return (whole, torch.empty_like(whole)) if op.kind is Kind.ALL_TO_ALL else (whole,)


def _fit(graph: Graph, records: list[Record]) -> Linear:
    """A line through the times of the bursts."""
    sizes, seconds = [], []
    for burst in range(1 + len(SIZES)):
        chosen = [record for record in records if graph[record.key].segment == burst]
        sizes.append(graph[chosen[0].key].amount)
        seconds.append(max(record.end for record in chosen) - min(record.begin for record in chosen))
    alone, small, large = seconds
    wider = sizes[2] - sizes[1]
    beta = max(0.0, large - small) / EACH / wider if wider else large / EACH / sizes[2]
    fixed = max(0.0, (small - alone) / (EACH - 1) - beta * sizes[1])
    return Linear(max(0.0, alone - fixed - beta * sizes[0]), beta, fixed)

"""What a lane's link takes, measured while nobody computes.

    alone    [op]                          alpha + fixed + beta x bytes
    bursts   [op][op][op]                  alpha + N x (fixed + beta x bytes)
             [  op  ][  op  ][  op  ]      of two sizes

In a step, ops wait for ranks that compute longer than others, so what one of them takes there says little about the
wire. Here all begin together. Orders that keep a link busy need to know what it takes, not how long one op is away.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import torch
from torch import Tensor

from collectives.overlap.cost import Linear
from collectives.overlap.engine import Engine, Record
from collectives.overlap.graph import Graph
from collectives.overlap.op import Kind, Op, Piece
from collectives.overlap.plan import Plan
from collectives.trainer.rank import Rank

SIZES = (64 << 10, 1 << 20)  # bytes
EACH = 6  # ops of each size
_TIMES = 3  # the first is not counted
_SUMS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
_MESSAGES = (Kind.SEND, Kind.RECV)


def links(rank: Rank, step: Graph) -> dict[tuple[str, Kind], Linear]:
    """By lane and kind of what the step moves, or a policy may make of it. Equal on all ranks. Collective."""
    wanted: dict[str, dict[Kind, bool]] = defaultdict(dict)  # whether they sum gradients, or gather weights
    for op in step:
        if op.kind.moves:
            kinds: tuple[Kind, ...] = _SUMS if op.pieces and op.lane != "tp" else (op.kind,)
            wanted[op.lane] |= dict.fromkeys(kinds, bool(op.pieces))
    if any(layer.moved for layer in step.layers):
        wanted["ep"] |= dict.fromkeys(_SUMS, True)
    ops = [op for lane, kinds in wanted.items() for kind, sums in kinds.items() for op in _ops(rank, lane, kind, sums)]
    orders: dict[tuple[int, str], list[str]] = defaultdict(list)
    for op in ops:
        orders[op.device, op.lane].append(op.name)
    plan = Plan("bursts", Graph(tuple(ops)), {lane: tuple(names) for lane, names in orders.items()})
    groups = rank.world.groups(plan)
    device = rank.mesh.place["pp"]
    mine: dict[str, tuple[float, float, float]] = {}
    with Engine(plan, device, groups, canonical=rank.config.run.canonical) as engine:
        for time in range(_TIMES):
            engine.begin_step()
            for lane, sorts in wanted.items():
                for kind in sorts if lane in groups else ():
                    chosen = [op for op in ops if (op.device, op.lane, op.kind) == (device, lane, kind)]
                    if kind is Kind.RECV:
                        continue  # with what is sent
                    if kind is Kind.SEND:
                        chosen = [op for op in ops if op.device == device and op.kind in _MESSAGES]
                    records = _run(engine, chosen, groups[lane].size(), groups[lane].rank(), rank)
                    if time and records:
                        mine[f"{lane}.{kind}.{time}"] = _fit(chosen, records)
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for blob in rank.world.gather(json.dumps(mine).encode()):
        for name, line in json.loads(blob).items():
            found[name.rpartition(".")[0]].append(line)
    lines = {name: Linear(*(median(part) for part in zip(*seen, strict=True))) for name, seen in found.items()}
    return {
        (lane, kind): lines[key]
        for lane, kinds in wanted.items()
        for kind in kinds
        for key in (f"{lane}.{Kind.SEND if kind is Kind.RECV else kind}",)
        if key in lines
    }


def _ops(rank: Rank, lane: str, kind: Kind, sums: bool) -> Iterable[Op]:
    """One alone, then a burst; of messages, one to the next stage and one from the stage before."""
    stages = rank.mesh.size("pp")
    unit = 256 * max(1, rank.mesh.size(lane))
    for device in range(stages):
        for number in range(1 + len(SIZES) * EACH):
            size = SIZES[max(0, number - 1) // EACH] // unit * unit or unit
            pieces = (Piece(0, 0, size),) if sums else ()
            if kind not in _MESSAGES:
                yield Op(f"{kind}.{lane}.{device}.{number}", kind, device, lane, size, pieces=pieces)
            elif kind is Kind.SEND:
                yield Op(f"send.{device}.{number}", kind, device, lane, size, peer=(device + 1) % stages)
            else:
                before = (device - 1) % stages
                yield Op(f"recv.{before}.{number}", kind, device, lane, size, peer=before)


def _run(engine: Engine, ops: list[Op], ranks: int, place: int, rank: Rank) -> list[Record]:
    """The first alone, then the others at once, size by size."""
    engine.records()
    pairs = [(op, *_tensors(op, ranks, place)) for op in ops]
    for burst in range(1 + len(SIZES)):
        rank.world.total(0)  # all begin together
        chosen = [pair for pair in pairs if _burst(pair[0]) == burst]
        for op, first, second in chosen:
            engine.ready(op.name, first, second, *_rows(op, ranks, place))
        for op, *_ in chosen:
            engine.wait(op.name)
    sent = [op.name for op in ops if op.kind is Kind.SEND]
    return [record for record in engine.records() if record.name not in sent]


def _tensors(op: Op, ranks: int, place: int) -> tuple[Tensor, Tensor | None]:
    whole = torch.zeros(int(op.amount) // 4)
    part = whole.view(ranks, -1)[place]
    if op.kind is Kind.ALL_REDUCE:
        return whole, part
    if op.kind is Kind.REDUCE_SCATTER:
        return whole, part.clone()
    if op.kind is Kind.ALL_GATHER:
        return part.clone(), whole
    return whole, torch.empty_like(whole) if op.kind in (Kind.ALL_TO_ALL, Kind.SHIFT) else None


def _rows(op: Op, ranks: int, place: int) -> Iterable[list[int]]:
    """Numbers that go to and come from each rank, where these differ: all to the next one."""
    for by in (1, -1) if op.kind is Kind.SHIFT else ():
        yield [int(op.amount) // 4 if rank == (place + by) % ranks else 0 for rank in range(ranks)]


def _burst(op: Op) -> int:
    """Which of them an op belongs to; 0: it runs alone."""
    number = int(op.name.rpartition(".")[2])
    return (number + EACH - 1) // EACH


def _fit(ops: list[Op], records: list[Record]) -> tuple[float, float, float]:
    """alpha, beta and fixed seconds."""
    known = {op.name: op for op in ops}
    bytes_, seconds = [0.0] * 3, [0.0] * 3
    for burst in range(3):
        chosen = [record for record in records if _burst(known[record.name]) == burst]
        bytes_[burst] = known[chosen[0].name].amount
        seconds[burst] = max(record.end for record in chosen) - min(record.begin for record in chosen)
    alone, small, large = seconds
    wider = bytes_[2] - bytes_[1]
    beta = max(0.0, large - small) / EACH / wider if wider else large / EACH / bytes_[2]
    fixed = max(0.0, (small - alone) / (EACH - 1) - beta * bytes_[1])
    return max(0.0, alone - fixed - beta * bytes_[0]), beta, fixed

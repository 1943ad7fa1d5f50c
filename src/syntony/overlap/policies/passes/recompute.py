"""Recomputes activations: which ones, for a given memory, and when: while the device waits for communication.

    kept         keep 0 | keep 1 ..                  bwd 1 | wait | bwd 0 | wait
    again        keep 0 |                            bwd 1 | fwd 0 again | bwd 0        beside transfers: free
    on demand    keep 0 |                            bwd 1 | wait | fwd 0 again | bwd 0

Which ones is decided by an integer program over the segments of a device's layers (within_memory):

    least    sum of the recomputation that is not hidden
    with     keep[i] in {0, 1}                       segment i is kept, in all microbatches
             hidden[i, w] <= t[i] (1 - keep[i])      seconds of it that fit into wait w, at most `ahead` ops before
             sum over i of hidden[i, w] <= w         .. its backward
             held bytes <= memory                    whenever memory is freed, with what is kept or there early

Exact, or with one choice for all identical layers. After Chen et al., Lynx (2024), which has both programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from syntony.base.command import UserError
from syntony.overlap.policies.policy import Decided, best_of
from syntony.overlap.predict.simulation import Timeline, simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.pipelines.chunks import chunks_of

Segment = tuple[int, int]  # layer, and which of its segments
_SECONDS = 5.0  # for a program
_TRIES = 4  # with less memory each time, if hidden recomputation also needs some


def hide_recompute(graph: Graph, ahead: int) -> Graph:
    """Every recomputation may begin once its device has reached the Op `ahead` places before its own; this determines
    its memory. The order decides its exact position (it is `movable`)."""
    _recomputes(graph)
    done: dict[int, list[OpKey]] = {}
    found = []
    for op in graph:
        if op.kind is Kind.RECOMPUTE:
            before = done.get(op.device, [])[-ahead:][:1]
            op = op._replace(deps=tuple(dict.fromkeys((*op.deps, *before))))
        elif op.lane == COMPUTE:
            done.setdefault(op.device, []).append(op.key)
        found.append(op)
    return graph.with_ops(found)


def _recomputes(graph: Graph) -> None:
    if not any(op.kind is Kind.RECOMPUTE for op in graph):
        raise UserError("this step computes no activations again; set recompute=true")


def keep(graph: Graph, kept: Collection[Segment]) -> Graph:
    """Keeps the activations of these segments in all microbatches; those of all others are recomputed."""
    again: dict[int, list[int]] = {}
    for op in graph:
        if op.kind is Kind.RECOMPUTE and (op.layer, op.segment) not in kept and op.microbatch == 0:
            again.setdefault(op.layer, []).append(op.segment)
    gone = {op.key for op in graph if op.kind is Kind.RECOMPUTE and (op.layer, op.segment) in kept}
    found = []
    for op in graph:
        if op.key in gone:
            continue
        layer = graph.layers[op.layer] if op.layer >= 0 else None
        if layer is not None and op.microbatch >= 0 and op.lane == COMPUTE:
            own = again.get(op.layer, [])
            if op.kind is Kind.FORWARD:
                inputs = 0 if own else layer.enters(op.segment)
                each = layer.again if own else layer.left
                more = each(op.segment) if (op.layer, op.segment) in kept else 0
                op = op._replace(holds=op.holds - inputs + more)
            elif op.kind is Kind.BACKWARD and not own:
                inputs = layer.enters(op.segment)
                op = op._replace(frees=op.frees - inputs + layer.left(op.segment) - layer.again(op.segment))
            elif op.kind is Kind.BACKWARD_INPUT and op.segment == 0 and not own:
                op = op._replace(frees=op.frees - layer.recomputed + layer.activations)
        found.append(op._replace(deps=tuple(dep for dep in op.deps if dep not in gone)))
    return graph.with_ops(found)


def hidden(graph: Graph, ahead: int) -> Decided:
    """Runs the remaining recomputation while its device waits."""
    again = any(op.kind is Kind.RECOMPUTE for op in graph)
    return Decided(hide_recompute(graph, ahead) if again else graph, movable=(Kind.RECOMPUTE,))


def within_memory(graph: Graph, cost: Cost, memory: int, ahead: int, alike: bool) -> Decided:
    """Chooses the cheapest recomputation for this many bytes of each device's activations. Raises UserError if they do
    not suffice for any choice.

    alike    the same choice for all identical layers of a device
    """
    _recomputes(graph)
    everything = {(op.layer, op.segment) for op in graph if op.kind is Kind.RECOMPUTE}
    nothing = hidden(keep(graph, everything), ahead)
    whole = simulate(nothing.plan("", {}, cost), cost)
    least = simulate(Decided(graph).plan("", {}, cost), cost).peak
    for device, bytes_ in least.items():
        if bytes_ > memory:
            raise UserError(
                f"memory is {memory}; with all activations computed again, device {device} needs {bytes_:.0f} bytes"
            )
    found = [nothing if max(whole.peak.values()) <= memory else Decided(graph)]
    for early in sorted({1, 2, ahead}):
        program, left = _Program.of(graph, cost, whole, early, alike), {device: float(memory) for device in least}
        for _ in range(_TRIES):
            one = hidden(keep(graph, _chosen(program, left)), early)
            over = {d: peak - memory for d, peak in simulate(one.plan("", {}, cost), cost).peak.items()}
            if max(over.values()) <= 0:
                found.append(one)
                break
            left = {device: room - max(0.0, over[device]) for device, room in left.items()}
    return best_of(cost, found)


def balanced(graph: Graph, cost: Cost, decided: Callable[[Graph], Decided]) -> Decided:
    """The best partition of a pipeline's layers reached by moving them between neighbouring chunks, by its time
    including recomputation ("recomputation-aware")."""
    best = decided(graph)
    layout = graph.layout
    if layout is None or layout.pp == 1:
        return best
    chunks = chunks_of(graph.layers, layout)
    while True:
        for other in _neighbours(graph, chunks):
            try:
                found = decided(generate(graph.layers, layout, chunks=other))
            except UserError:  # does not fit into memory
                continue
            if best_of(cost, [best, found]) is found:
                best, chunks = found, other
                break
        else:
            return best


def _neighbours(graph: Graph, chunks: tuple[range, ...]) -> list[tuple[range, ...]]:
    """Moves a border by the layers between it and the next possible cut of the pipeline."""
    free = [i for i, layer in enumerate(graph.layers) if not layer.joined]
    borders, found = [chunk.start for chunk in chunks[1:]], []
    for place, border in enumerate(borders):
        at = free.index(border)
        for other in free[max(at - 1, 0) : at + 2]:
            moved = [0, *borders[:place], other, *borders[place + 1 :], len(graph.layers)]
            if other != border and all(a < b for a, b in pairwise(moved)):
                found.append(tuple(range(a, b) for a, b in pairwise(moved)))
    return found


@dataclass(frozen=True)
class _Again:
    """An Op that recomputes, unless its segment is kept."""

    choice: int
    segment: Segment
    device: int
    bytes: float  # size of its result
    seconds: float
    begin: int  # position in the graph of its forward,
    end: int  # of itself, and
    last: int  # of its backward
    waits: list[int]  # those in which it may hide


@dataclass(frozen=True)
class _Program:
    """choice     of each segment: the number of the variable that says whether it is kept
    inputs     by layer: bytes of a microbatch that are not there if all of its segments are kept
    waits      seconds, and the position in the graph of the Op that waits
    held       by position of an Op after which memory is freed: its device, and bytes if all is recomputed
    """

    choice: Mapping[Segment, int]
    inputs: Mapping[int, float]
    again: list[_Again]
    waits: list[tuple[float, int]]
    held: Mapping[int, tuple[int, float]]

    @staticmethod
    def of(graph: Graph, cost: Cost, whole: Timeline, ahead: int, alike: bool) -> _Program:
        """whole: the step without recomputation."""
        seconds, place = cost.seconds(graph)[0], {op.key: row for row, op in enumerate(graph)}
        waits, before = _waits(whole, place)
        names: dict[object, int] = {}
        choice: dict[Segment, int] = {}
        held, now = dict[int, tuple[int, float]](), dict.fromkeys(graph.devices, 0.0)
        again = list[_Again]()
        for row, op in enumerate(graph):
            now[op.device] += op.holds
            if op.frees > 0:
                held[row] = op.device, now[op.device]
                now[op.device] -= op.frees
            if op.kind is not Kind.RECOMPUTE:
                continue
            segment, layer = (op.layer, op.segment), graph.layers[op.layer]
            if segment not in choice:
                name = (op.device, replace(layer, name=""), op.segment) if alike else segment
                choice[segment] = names.setdefault(name, len(names))
            user = op.key._replace(kind=Kind.BACKWARD)
            user = user if user in before else op.key._replace(kind=Kind.BACKWARD_INPUT)
            begin = place[op.key._replace(kind=Kind.FORWARD)]
            left, took = layer.again(op.segment), float(seconds[row])
            mine = before[user][-ahead:]
            again.append(_Again(choice[segment], segment, op.device, left, took, begin, row, place[user], mine))
        inputs = {i: graph.layers[i].recomputed - graph.layers[i].activations for i, _ in choice}
        return _Program(choice, inputs, again, waits, held)


def _waits(whole: Timeline, place: Mapping[OpKey, int]) -> tuple[list[tuple[float, int]], dict[OpKey, list[int]]]:
    """The seconds for which devices wait before an Op, and its position; by Op, the indices of its own and all earlier
    waits."""
    waits, before = list[tuple[float, int]](), dict[OpKey, list[int]]()
    for (_, lane), keys in whole.plan.orders.items():
        mine, end = list[int](), None
        for key in keys if lane == COMPUTE else ():
            row = whole.row[key]
            waits.append((0.0 if end is None else max(0.0, float(whole.start[row]) - end), place[key]))
            mine.append(len(waits) - 1)
            before[key], end = list(mine), float(whole.end[row])
    return waits, before


def _chosen(program: _Program, memory: Mapping[int, float]) -> set[Segment]:
    """The kept segments."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count = 1 + max(program.choice.values())
    cells: list[tuple[int, int, float]] = []  # row, column, value
    most: list[float] = []

    def row(entries: Iterable[tuple[int, float]], at_most: float) -> None:
        cells.extend((len(most), column, value) for column, value in entries)
        most.append(at_most)

    columns, cost = count, np.zeros(count)
    room: dict[int, list[int]] = {}  # by wait: candidates to hide in it
    holding: dict[int, list[tuple[int, int, int, float]]] = {d: [] for d in memory}  # from, to, column, bytes
    for one in program.again:
        mine = range(columns, columns + sum(program.waits[wait][0] > 0 for wait in one.waits))
        columns = mine.stop
        holding[one.device].append((one.begin, one.end, one.choice, one.bytes))
        for column, wait in zip(mine, (wait for wait in one.waits if program.waits[wait][0] > 0), strict=True):
            room.setdefault(wait, []).append(column)
            early = one.bytes / one.seconds if one.seconds else 0.0
            holding[one.device].append((program.waits[wait][1], one.end, column, early))
        cost[one.choice] -= one.seconds  # if kept, nothing is recomputed
        row([(one.choice, one.seconds), *((column, 1.0) for column in mine)], one.seconds)
    whole = dict[int, int]()  # by layer: whether it is kept completely
    for i, size in program.inputs.items():
        whole[i], columns = columns, columns + 1
        for choice in {choice for (layer, _), choice in program.choice.items() if layer == i}:
            row([(whole[i], 1.0), (choice, -1.0)], 0.0)
        for one in program.again:
            if one.segment == (i, 0):
                holding[one.device].append((one.begin, one.last + 1, whole[i], -size))
    for wait, hiding in room.items():
        row([(column, 1.0) for column in hiding], program.waits[wait][0])
    for place, (device, bytes_) in program.held.items():
        entries: dict[int, float] = {}
        for begin, end, column, size in holding[device]:
            if begin <= place < end:
                entries[column] = entries.get(column, 0.0) + size
        row([(column, size / memory[device]) for column, size in entries.items()], 1.0 - bytes_ / memory[device])
    rows, at, values = zip(*cells, strict=True)
    table = csr_array((np.array(values), (rows, at)), shape=(len(most), columns))
    places, gain = np.arange(columns), np.zeros(columns)
    gain[: len(cost)] = cost
    gain[[column for hiding in room.values() for column in hiding]] = -1.0
    solved = milp(
        gain, integrality=places < count, bounds=Bounds(0, np.where(places < count, 1.0, np.inf)),
        constraints=LinearConstraint(table, ub=np.array(most)),
        options={"time_limit": _SECONDS, "mip_rel_gap": 1e-3, "presolve": False},
    )  # fmt: skip
    if solved.x is None:
        return set()
    return {segment for segment, choice in program.choice.items() if solved.x[choice] > 0.5}

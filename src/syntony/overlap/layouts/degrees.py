"""A tensor-parallel degree for each layer, where sub-batches take turns, as the planner of Oases chooses them (Li et
al., arXiv 2305.16121; its abstract was read, the program below is ours).

All ranks compute all layers. A layer of degree t is cut over t neighbours, and the ranks at one place of these groups
sum its gradients:

    degree    sums around its branches    sums of gradients       weights, gradients and the optimizer's state
    large     many bytes                  few, or none            divided by t
    small     few, or none                many                    hardly divided

While one sub-batch computes, the other's sums move, so a layer takes the longer of the two, not both. The step takes

    T >= layers, each the longer of computing and communicating, what moves where the degree changes, and the sum of the
         first layer's gradients, which come last
    T >= the forward, and the sums of gradients behind it
    T >= all that moves over one link

and then updates. An integer program minimizes that over all choices of degrees that fit into memory. The choice is
simulated under policy `oases`, beside equal degrees for all layers. Ranks hold equal parts of the tokens between
layers, as with sequence parallelism, so where the degree changes an all_to_all moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.wording import rounded_size
from syntony.overlap.layouts.memory import lasting, needed
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost, Linear, Wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import ModelSpec
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import Kind
from syntony.overlap.step.sharding import Sharding

Doubles = NDArray[np.float64]
POLICY = "oases"
_SECONDS = 20.0  # for the program
_TRIES = 4  # with less memory each


@dataclass(frozen=True)
class Task:
    """What is trained, and on what.

    sequences    of a sub-batch, on all ranks together
    batches      sub-batches of a step, which take turns
    costs        of a layout's Ops
    memory       bytes of a device
    """

    model: ModelSpec
    ranks: int
    sequences: int
    costs: Callable[[Layout], Cost]
    memory: float = float("inf")
    batches: int = 2
    element: int = 2
    recompute: bool = False

    def layout(self, degree: int) -> Layout:
        """All layers of one degree."""
        return Layout(dp=self.ranks // degree, tp=degree, microbatches=self.batches, recompute=self.recompute)


@dataclass(frozen=True)
class Chosen:
    """Degrees by layer, first to last, simulated.

    expected    seconds by the program's model, of which it has found the least
    memory      bytes that a device needs
    """

    degrees: tuple[int, ...]
    policy: str
    expected: float
    seconds: float
    memory: float

    def __str__(self) -> str:
        """`8, 30 x 2, 8`."""
        runs: list[tuple[int, int]] = []
        for degree in self.degrees:
            count = runs.pop()[1] if runs and runs[-1][0] == degree else 0
            runs.append((degree, count + 1))
        return ", ".join(f"{count} x {degree}" if count > 1 else f"{degree}" for degree, count in runs)


@dataclass(frozen=True)
class _Parts:
    """What every layer needs at each degree. Rows are layers, columns degrees.

    ahead, behind   seconds of its forwards, and of its backwards: the longer of computing and communicating
    moving          seconds of the sums around its branches; `sums`: of its gradients'; `update`: of its weights'
    memory          bytes
    changes         seconds from one layer to the next, by both their degrees
    one_link        whether sums of gradients share their link with the others
    """

    ahead: Doubles
    behind: Doubles
    moving: Doubles
    sums: Doubles
    update: Doubles
    memory: Doubles
    changes: Doubles
    one_link: bool

    @property
    def longer(self) -> Doubles:
        return self.ahead + self.behind

    def seconds(self, places: Sequence[int]) -> float:
        """Of a step whose layers have the degrees at these columns."""
        rows = np.arange(len(places)), np.array(places)
        between = float(sum(self.changes[pair] for pair in pairwise(places)))
        sums = float(self.sums[rows].sum())
        moved = float(self.moving[rows].sum()) + between + (sums if self.one_link else 0.0)
        whole = float(self.longer[rows].sum()) + between + float(self.sums[0, places[0]])
        return max(whole, float(self.ahead[rows].sum()) + sums, moved) + float(self.update[rows].sum())


class Planner:
    """Raises UserError if no degree can cut the model."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._layers: dict[int, tuple[LayerSpec, ...]] = {}
        reason = UserError("")
        for degree in (degree for degree in range(1, task.ranks + 1) if task.ranks % degree == 0):
            if task.sequences * degree % task.ranks:
                reason = UserError(f"{task.sequences} sequences are too few for degree {degree}")
                continue
            form = Form(task.sequences * degree // task.ranks, task.element)
            try:
                self._layers[degree] = layers_of(task.model, task.layout(degree), form)
            except UserError as error:
                reason = error
        if not self._layers:
            raise UserError(f"no tensor-parallel degree of {task.ranks} ranks can cut the model: {reason}")
        self._costs = {degree: task.costs(task.layout(degree)) for degree in self._layers}

    @property
    def degrees(self) -> tuple[int, ...]:
        """Those that can cut the model."""
        return tuple(self._layers)

    def chosen(self, policy: str = POLICY) -> Chosen:
        """What the program finds, or one degree for all layers if that is simulated faster. Raises UserError if no
        degrees fit into memory."""
        memory = self._task.memory
        found = self.uniform(policy)
        for _ in range(_TRIES):
            places = _least(self._parts, memory)
            if places is None:
                break
            mixed = self.simulated([self.degrees[place] for place in places], policy)
            if mixed.memory <= self._task.memory:
                found.append(mixed)
                break
            memory *= self._task.memory / mixed.memory  # the program does not know what comes and goes
        if not found:
            least = float(self._parts.memory.min(axis=1).sum())
            raise UserError(
                f"no degrees fit into {rounded_size(int(self._task.memory))} a device; the least is about "
                f"{rounded_size(int(least))}"
            )
        return min(found, key=lambda one: one.seconds)

    def uniform(self, policy: str) -> list[Chosen]:
        """Every degree for all layers, if it fits into memory."""
        count = len(next(iter(self._layers.values())))
        each = [self.simulated([degree] * count, policy) for degree in self.degrees]
        return [one for one in each if one.memory <= self._task.memory]

    def simulated(self, degrees: Sequence[int], policy: str) -> Chosen:
        """The step with these degrees, by layer."""
        graph, cost = self._step(degrees)
        maker = policy if max(degrees) > 1 else "fifo"  # otherwise nothing moves between sub-batches
        timeline = simulate(planned(chain_of(maker), graph, cost), cost)
        places = [self.degrees.index(degree) for degree in degrees]
        memory = max(needed(timeline, self._task.element).values())
        return Chosen(tuple(degrees), maker, self._parts.seconds(places), timeline.seconds, memory)

    @cached_property
    def _parts(self) -> _Parts:
        task, degrees = self._task, self.degrees
        shape = (len(self._layers[degrees[0]]), len(degrees))
        parts = {name: np.zeros(shape) for name in ("ahead", "behind", "moving", "sums", "update", "memory")}
        for column, degree in enumerate(degrees):
            cost = self._costs[degree]
            for row, layer in enumerate(self._layers[degree]):
                forward = sum(layer.segments) / cost.flops
                backward = forward * (task.recompute + sum(layer.backward))
                there = sum(self._transfer(degree, move, move.forward) for move in layer.transfers)
                back = sum(self._transfer(degree, move, move.backward) for move in layer.transfers)
                parts["ahead"][row, column] = task.batches * max(forward, there)
                parts["behind"][row, column] = task.batches * max(backward, back)
                parts["moving"][row, column] = task.batches * (there + back)
                parts["sums"][row, column] = self._seconds(degree, "dp", Kind.ALL_REDUCE, layer.weights)
                parts["update"][row, column] = layer.weights * cost.memory
                kept = layer.inputs if task.recompute else layer.activations
                parts["memory"][row, column] = task.batches * kept
            whole = Layout()
            parts["memory"][:, column] += [
                lasting(Sharding.of(layer, whole), whole, task.element) for layer in self._layers[degree]
            ]
        changes = np.zeros((len(degrees), len(degrees)))
        for (row, before), (column, after) in product(enumerate(degrees), repeat=2):
            if before != after:
                one = self._seconds(max(before, after), "tp", Kind.ALL_TO_ALL, self._between)
                changes[row, column] = 2 * task.batches * one
        wires = self._wires(degrees)
        return _Parts(**parts, changes=changes, one_link=len({wire.link for wire in wires.values()}) < len(wires))

    @property
    def _between(self) -> int:
        """Bytes of a rank's part of a sub-batch's activations between two layers."""
        model = self._task.model
        return self._task.sequences * model.seq * model.hidden * self._task.element // self._task.ranks

    def _transfer(self, degree: int, move: CommSpec, kind: Kind | None) -> float:
        return self._seconds(degree, move.lane, kind, move.bytes) if kind is not None else 0.0

    def _seconds(self, degree: int, lane: str, kind: Kind, size: float) -> float:
        """Of a transfer among the ranks of a layer of this degree; 0 if there is one rank."""
        wire = self._costs[degree].wires.get(lane)
        if wire is None:
            return 0.0
        line = wire.kinds[kind]
        return line.alpha + line.fixed + line.beta * size

    def _wires(self, degrees: Sequence[int]) -> Mapping[str, Wire]:
        """The lanes of a step with these degrees, on the links that their largest groups take."""
        largest = {"tp": max(degrees), "dp": min(degrees)}
        found = {lane: self._costs[degree].wires.get(lane) for lane, degree in largest.items()}
        return {lane: wire for lane, wire in found.items() if wire is not None}

    def _step(self, degrees: Sequence[int]) -> tuple[Graph, Cost]:
        """The step, as one of the largest groups of each lane, where a layer's own groups are told by what it costs."""
        task, layers = self._task, [self._layers[degree][row] for row, degree in enumerate(degrees)]
        for row, (before, after) in enumerate(pairwise(degrees), start=1):
            if before != after:
                moved = CommSpec("reshard", "tp", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, self._between)
                own = layers[row]
                layers[row] = replace(own, segments=(0, *own.segments), transfers=(moved, *own.transfers))
        layout = replace(task.layout(max(degrees)), dp=task.ranks // min(degrees))
        graph, base = generate(layers, layout), self._costs[degrees[0]]
        # What a layer's groups take is known by Op: that of a group of another size would be wrong.
        whole = {
            op.key: self._seconds(
                max(degrees[op.layer - 1 : op.layer + 1]) if op.key.kind == "reshard" else degrees[op.layer],
                op.lane, op.kind, op.amount,
            )
            for op in graph
            if op.kind.moves
        }  # fmt: skip
        wires = {
            lane: Wire({kind: Linear(0.0, line.beta) for kind, line in wire.kinds.items()}, wire.link)
            for lane, wire in self._wires(degrees).items()
        }
        return graph, Cost(base.flops, wires, base.memory, whole)


def _least(parts: _Parts, memory: float) -> list[int] | None:
    """The columns, by layer, that minimize `_Parts.seconds` within memory; None if none fit."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    layers, degrees = parts.ahead.shape
    own = np.arange(layers * degrees).reshape(layers, degrees)
    pairs = layers * degrees + np.arange((layers - 1) * degrees**2).reshape(layers - 1, degrees, degrees)
    step = own.size + pairs.size  # the column of T
    cells: list[tuple[int, int, float]] = []
    low, high = list[float](), list[float]()

    def row(entries: Sequence[tuple[int, float]], least: float, most: float) -> None:
        cells.extend((len(low), column, value) for column, value in entries)
        low.append(least)
        high.append(most)

    def of(columns: NDArray[np.int64], values: Doubles) -> list[tuple[int, float]]:
        return [(int(column), float(value)) for column, value in zip(columns.flat, values.flat, strict=True)]

    for layer in range(layers):
        row([(int(column), 1.0) for column in own[layer]], 1.0, 1.0)
    for layer in range(layers - 1):  # a pair is one degree here and one there
        for place in range(degrees):
            for mine, both in ((own[layer], pairs[layer, place]), (own[layer + 1], pairs[layer, :, place])):
                row([(int(mine[place]), -1.0), *((int(column), 1.0) for column in both)], 0.0, 0.0)
    between = of(pairs, np.broadcast_to(parts.changes, pairs.shape))
    moving = parts.moving + (parts.sums if parts.one_link else 0.0)
    longer = parts.longer
    longer[0] += parts.sums[0]
    for values, more in ((longer, between), (parts.ahead + parts.sums, []), (moving, between)):
        row([(step, -1.0), *of(own, values), *more], -np.inf, 0.0)
    if memory < float("inf"):
        row(of(own, parts.memory / memory), -np.inf, 1.0)
    rows, at, entries = zip(*cells, strict=True)
    table = csr_array((np.array(entries), (rows, at)), shape=(len(low), step + 1))
    gain = np.zeros(step + 1)
    gain[: own.size], gain[step] = parts.update.ravel(), 1.0
    whole = np.arange(step + 1) < own.size
    solved = milp(
        gain, integrality=whole, bounds=Bounds(0, np.where(np.arange(step + 1) < step, 1.0, np.inf)),
        constraints=LinearConstraint(table, np.array(low), np.array(high)),
        options={"time_limit": _SECONDS, "mip_rel_gap": 1e-4},
    )  # fmt: skip
    if solved.x is None:
        return None
    return [int(place) for place in solved.x[: own.size].reshape(layers, degrees).argmax(axis=1)]

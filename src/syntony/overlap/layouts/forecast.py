"""A step's time and memory in closed form, for some ten thousand layouts per second or two, to select simulations.

    step  =  pipeline(F, X, W, message)  +  exposed sums of gradients  +  update  +  gathers of weights

    F, X, W    of a chunk: operations / flops, and transfers of tp, cp and ep, which a plain order does not hide
    pipeline   its order run with these times for a few microbatches; more of them occupy the busiest device longer
    sums       run beside the last microbatch's backward, except for the last layer's
    update     of a layer runs beside the sums and the gathers of others
    gathers    of sharded weights run beside computation; the step takes at least as long as they do

The parts are kept separate to explain why another layout is slower. A simulation also covers what this ignores: stages
of unequal weight, links shared by two lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from syntony.overlap.layouts.memory import lasting
from syntony.overlap.step.cost import Cost, Linear, Wire
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind
from syntony.overlap.step.pipelines.chunks import split
from syntony.overlap.step.pipelines.pipelines import pipeline
from syntony.overlap.step.pipelines.tasks import Pipeline, Times, finish
from syntony.overlap.step.sharding import Sharding

Doubles = NDArray[np.float64]
_LANES = {"tp": "tp", "row": "tp", "column": "tp", "cp": "cp", "outer": "cp", "heads": "cp"}
_LANES |= dict.fromkeys(("ep", "ep_far", "ep_near"), "ep")
"""Of what moves for every microbatch, by which of PARTS it is told."""
PARTS = ("compute", "tp", "cp", "ep", "bubble", "gradients", "weights", "update")
"""The parts of a step's seconds: operations, transfers of its groups between them, waiting for other stages, exposed
sums of gradients and gathers of weights, the optimizer."""


@dataclass(frozen=True)
class Forecast:
    """seconds of a step, also by PARTS; memory: bytes of the device that needs most."""

    seconds: float
    parts: Mapping[str, float]
    memory: float


class Forecaster:
    """Forecasts layouts with the same layers on one rank: equal tp, cp, ep, attention and batch."""

    def __init__(self, layers: Sequence[LayerSpec], element: int) -> None:
        self._layers, self._element = layers, element
        names = [replace(layer, name="", moved=(), shadow=None) for layer in layers]
        self._kinds = list(dict.fromkeys(names))
        row = {kind: number for number, kind in enumerate(self._kinds)}
        self._kind = np.array([row[name] for name in names])
        self._operations = self._each(lambda kind: sum(kind.segments))
        self._backward = np.array([kind.backward for kind in self._kinds])[self._kind]
        self._weights = self._each(lambda kind: kind.weights)
        self._kept = self._each(lambda kind: kind.activations)
        self._inputs = self._each(lambda kind: kind.inputs)
        self._output = self._each(lambda kind: kind.output)
        self._starts: dict[int, NDArray[np.int64]] = {}

    def forecast(self, layout: Layout, cost: Cost, wires: Mapping[str, Wire]) -> Forecast:
        """Raises UserError if there are too few layers for the pipeline."""
        order = _order(layout)
        chunks = len(order.places)
        if chunks not in self._starts:
            self._starts[chunks] = np.array([chunk.start for chunk in split(self._layers, chunks)])
        starts, device = self._starts[chunks], np.array(order.places)

        def of_chunks(values: Doubles) -> Doubles:
            return np.add.reduceat(values, starts)

        def of_devices(values: Doubles) -> Doubles:
            return np.bincount(device, of_chunks(values), layout.pp).astype(np.float64)

        microbatches, none = layout.microbatches, np.zeros(len(self._layers))
        forward = self._operations / cost.flops
        again = forward if layout.recompute else none
        moved = {lane: self._moved(lane, layout, wires) for lane in _LANES}
        there, back = (sum((ways[side] for ways in moved.values()), none) for side in (0, 1))
        inputs, weights = (forward * self._backward[:, half] for half in (0, 1))
        times = [of_chunks(part) for part in (forward + there, inputs + again + back, weights)]
        message = _seconds(wires, "pp", Kind.SEND, float(self._output.max())) if layout.pp > 1 else 0.0
        whole = sum(times, np.zeros(chunks))
        busiest = float(np.bincount(device, whole, layout.pp).max() - whole.sum() / layout.pp)
        f, x, w = (float(part.mean()) for part in times)
        took = _length(layout, Times(f, x, w, message)) + busiest * microbatches

        divided = [Sharding.of(kind, layout) for kind in self._kinds]
        sums, after, before, behind = self._data(layout, wires, divided)
        last = float((inputs + weights + back).sum()) / layout.pp
        count = max(1, len(self._layers) // layout.pp)
        summed = float(of_devices(sums).max())
        gathered = float(of_devices(behind).max()) if layout.secondary == 1 else 0.0  # otherwise on separate wires
        left = max(0.0, last * (count - 1) / count - gathered)  # of the last backward, which also gathers weights
        exposed = max(summed - left, float(sums.max()))
        waits = sum(
            (
                self._waits(layout, wires, gathers, each)
                for gathers, each in ((before, forward + there), (behind, inputs + again + weights + back))
            ),
            none,
        )
        gathers = float(of_devices(after).max()) + microbatches * float(of_devices(waits).max()) + float(before.max())
        updates = float(of_devices(self._of(lambda one: one.updated, divided)).max()) * cost.memory
        moves = exposed + gathers  # layer by layer, beside the updates of others
        update = max(moves, updates) + min(moves, updates) / count - moves
        computed = float(of_devices(forward + again + inputs + weights).max()) * microbatches
        parts = {"compute": computed, "gradients": exposed, "weights": gathers, "update": update}
        for lane, part in _LANES.items():
            if lane != part:
                moved[part] = (moved[part][0] + moved[lane][0], moved[part][1] + moved.pop(lane)[1])
        parts |= {lane: float(of_devices(sum(ways, none)).max()) * microbatches for lane, ways in moved.items()}
        total = took + exposed + gathers + update
        parts["bubble"] = max(0.0, total - sum(parts.values()))
        return Forecast(total, {part: parts[part] for part in PARTS}, self._memory(layout, divided, starts, order))

    def _each(self, of: Callable[[LayerSpec], float]) -> Doubles:
        """By layer."""
        values: Doubles = np.array([of(kind) for kind in self._kinds], np.float64)[self._kind]
        return values

    def _moved(self, lane: str, layout: Layout, wires: Mapping[str, Wire]) -> tuple[Doubles, Doubles]:
        """Seconds of each layer's transfers on the lane, forward and backward, for one microbatch."""
        if lane not in layout.groups:
            return np.zeros(len(self._layers)), np.zeros(len(self._layers))

        def seconds(kind: LayerSpec, way: str) -> float:
            ops = [(getattr(move, way), move.bytes) for move in kind.transfers if move.lane == lane]
            if way == "backward":
                ops += [(move.forward, move.bytes) for move in kind.transfers if move.lane == lane and move.again]
            return sum(_seconds(wires, lane, what, size) for what, size in ops if what is not None)

        return self._each(lambda kind: seconds(kind, "forward")), self._each(lambda kind: seconds(kind, "backward"))

    def _of(self, value: Callable[[Sharding], float], divided: Sequence[Sharding]) -> Doubles:
        """By layer, from its kind's sharding."""
        values: Doubles = np.array(list(map(value, divided)), np.float64)[self._kind]
        return values

    def _data(
        self, layout: Layout, wires: Mapping[str, Wire], divided: Sequence[Sharding]
    ) -> tuple[Doubles, Doubles, Doubles, Doubles]:
        """Seconds of each layer's sum of gradients, of its gather after the update, and of a gather before each use in
        the forward and in the backward."""
        replicated = layout.replicas > 1

        def sums(one: Sharding) -> float:
            taken = 0.0
            if one.ranks > 1:
                what = Kind.REDUCE_SCATTER if one.level else Kind.ALL_REDUCE
                taken = _occupied(wires, one.lane, what, one.weights)
            if one.lane == "dp" and replicated:
                what = Kind.REDUCE_SCATTER if one.spreads else Kind.ALL_REDUCE
                taken += _occupied(wires, "replicas", what, one.weights / one.ranks)
            return taken

        def gather(one: Sharding) -> float:
            moves = one.ranks > 1 and one.weights
            return _occupied(wires, one.lane, Kind.ALL_GATHER, one.weights) if moves else 0.0

        def after(one: Sharding) -> float:
            taken = gather(one) if one.gathers else 0.0
            if one.spreads:
                taken += _occupied(wires, "replicas", Kind.ALL_GATHER, one.weights / one.ranks)
            return taken

        def ahead(one: Sharding) -> float:
            return gather(one) if one.level == 3 else 0.0

        def behind(one: Sharding) -> float:
            if layout.secondary > 1 and one.lane == "dp" and one.weights:
                return _occupied(wires, "near", Kind.ALL_GATHER, one.weights)
            return ahead(one)

        seconds = [self._of(one, divided) for one in (sums, after, ahead, behind)]
        return seconds[0], seconds[1], seconds[2], seconds[3]

    def _waits(self, layout: Layout, wires: Mapping[str, Wire], gathers: Doubles, took: Doubles) -> Doubles:
        """By layer, how long a use of gathered weights waits for them (zero=3), if each use takes `took`.

        A gather begins when the use `prefetch` + 1 before its own has ended. So that many uses take at least as long as
        one gather with its latency and one use.
        """
        if not gathers.any():
            return gathers
        latency = max(wires[lane].kinds[Kind.ALL_GATHER].alpha for lane in ("dp", "edp") if lane in layout.groups)
        paced = (gathers + latency - layout.prefetch * took) / (layout.prefetch + 1)
        return np.where(gathers > 0, np.maximum(0.0, np.maximum(gathers - took, paced)), 0.0)

    def _memory(self, layout: Layout, divided: Sequence[Sharding], starts: NDArray[np.int64], order: Pipeline) -> float:
        """Bytes of the device that needs most."""
        each = np.add.reduceat(self._inputs if layout.recompute else self._kept, starts)
        if not layout.recompute and layout.pp > 1:
            each[1:] += self._output[starts[1:] - 1]  # input from another device
        ends = np.append(starts[1:], len(self._layers))
        places, most = np.array(order.places), 0.0
        stays = self._of(lambda one: lasting(one, layout, self._element), divided)
        heavy = int(np.bincount(places, np.add.reduceat(stays, starts), layout.pp).argmax())
        held_by = _held(layout.schedule, layout.pp, layout.loops, _few(layout))
        for device in {0, layout.pp - 1, heavy}:  # the first holds most, those at the ends have more weights
            held = held_by[device]
            own = np.flatnonzero(places == device)
            rows = np.concatenate([np.arange(starts[chunk], ends[chunk]) for chunk in own])
            passing = float(self._kept[rows].max()) if layout.recompute else 0.0
            if layout.zero >= 3:
                passing += float(np.sort(self._weights[rows])[-1 - layout.prefetch :].sum())
            if layout.zero >= 2:  # gradients before they are summed
                passing += float(self._weights[rows].sum())
            most = max(most, float(stays[rows].sum()) + float((held @ each[own]).max()) + passing)
        return most


def _seconds(wires: Mapping[str, Wire], lane: str, kind: Kind, size: float) -> float:
    line: Linear = wires[lane].kinds[kind]
    return line.alpha + line.fixed + line.beta * size


def _occupied(wires: Mapping[str, Wire], lane: str, kind: Kind, size: float) -> float:
    """Seconds for which a transfer delays the next one, without the latency of its last bytes."""
    return _seconds(wires, lane, kind, size) - wires[lane].kinds[kind].alpha


def _few(layout: Layout) -> int:
    """A number of microbatches after which the pipeline only repeats."""
    return min(layout.microbatches, 3 * layout.pp)


def _order(layout: Layout) -> Pipeline:
    return _steady(layout.schedule, layout.pp, layout.loops, _few(layout))


@lru_cache(maxsize=1024)
def _steady(schedule: str, devices: int, loops: int, microbatches: int) -> Pipeline:
    return pipeline(schedule, devices, loops, microbatches)


@lru_cache(maxsize=1024)
def _held(schedule: str, devices: int, loops: int, microbatches: int) -> dict[int, Doubles]:
    """By device: rows with the numbers of microbatches of each of its chunks that it may hold at a time."""
    found, order = dict[int, Doubles](), _steady(schedule, devices, loops, microbatches)
    for device, tasks in enumerate(order.orders):
        own = {chunk: at for at, chunk in enumerate(c for c, place in enumerate(order.places) if place == device)}
        step = np.zeros((len(tasks), len(own)))
        for number, task in enumerate(tasks):
            step[number, own[task.chunk]] = (task.kind == "F") - (task.kind in "BX")
        found[device] = np.unique(step.cumsum(axis=0)[step.sum(axis=1) > 0], axis=0)
    return found


def _length(layout: Layout, times: Times) -> float:
    """Seconds of all the pipeline's tasks if all chunks take the same. For 1f1b and interleaved, the closed form of
    Narayanan et al. (SC 2021), section 2.2; other orders are run."""
    whole, few, devices = times.forward + times.inputs + times.weights or 1.0, _few(layout), layout.pp
    if layout.schedule in ("1f1b", "interleaved"):
        return whole * (layout.microbatches * layout.loops + devices - 1) + 2 * (devices - 1) * times.message
    shares = tuple(round(20 * part / whole) / 20 for part in times)
    units = _units(layout.schedule, devices, layout.loops, few, shares)
    return whole * (units + (layout.microbatches - few) * layout.chunks)


@lru_cache(maxsize=4096)
def _units(schedule: str, devices: int, loops: int, microbatches: int, shares: tuple[float, ...]) -> float:
    return finish(_steady(schedule, devices, loops, microbatches), Times(*shares))

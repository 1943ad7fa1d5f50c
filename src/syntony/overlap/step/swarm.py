"""A swarm: every stage of a pipeline is served by several devices of unlike speed (Ryabinin et al., SWARM Parallelism,
ICML 2023).

    stage 0   [ 3 ] [ 1 ]        microbatches  0 1 2 4 5 6 ..  |  3 7 ..     to the device that would end them soonest
    stage 1   [ 1 ] [ 1 ] [ 1 ]                0 3 6 ..  |  1 4 7 ..  |  2 5 ..

A microbatch has no pipeline of its own: the devices that it visits are chosen stage by stage, in proportion to their
speeds. Its backward visits the same ones. Devices of a stage sum their gradients. The step is simulated only, because
the trainer's ranks of a stage process equally many microbatches each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph, LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind, Op, Piece
from syntony.overlap.step.op_key import BACKWARD, FORWARD, OpKey
from syntony.overlap.step.pipelines.chunks import split

Dealt = tuple[tuple[int, ...], ...]  # by stage and microbatch: the device, as a number among all


@dataclass(frozen=True)
class Swarm:
    """The speeds of each stage's devices, relative. Raises UserError unless all stages have some, above 0."""

    stages: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.stages or not all(self.stages) or min(map(min, self.stages)) <= 0:
            raise UserError(f"stages are {self}; each must have a device, and speeds must be above 0")

    def __str__(self) -> str:
        return ",".join(":".join(f"{speed:g}" for speed in stage) for stage in self.stages)

    @property
    def speeds(self) -> tuple[float, ...]:
        """Of all devices, stage by stage."""
        return tuple(speed for stage in self.stages for speed in stage)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each stage's first device."""
        return tuple(accumulate(map(len, self.stages), initial=0))[:-1]

    def chunks(self, layers: Sequence[LayerSpec]) -> tuple[range, ...]:
        """The layers of each stage: equal work. Devices are moved to where the work is, not layers."""
        return split(layers, len(self.stages))

    def dealt(self, microbatches: int, evenly: bool = False) -> Dealt:
        """Which device processes each microbatch: the one that would end it soonest, given those that it already has;
        or `evenly`, in turn."""
        found = []
        for first, stage in zip(self.firsts, self.stages, strict=True):
            counts, row = [0] * len(stage), []
            for m in range(microbatches):
                ends = [(count + 1) / speed for count, speed in zip(counts, stage, strict=True)]
                one = m % len(stage) if evenly else ends.index(min(ends))
                counts[one] += 1
                row.append(first + one)
            found.append(tuple(row))
        return tuple(found)

    def rebalanced(self, work: Sequence[float]) -> Swarm:
        """The same devices, moved between stages or exchanged, while that makes the slowest stage faster, or the next.

        work    of each stage, for the same microbatches
        """
        stages = [list(stage) for stage in self.stages]

        def seconds(changed: Sequence[Sequence[float]]) -> list[float]:
            """Of the stages, the slowest first."""
            return sorted((w / sum(s) for w, s in zip(work, changed, strict=True)), reverse=True)

        best = seconds(stages)
        while True:
            found = min(((seconds(one), one) for one in _neighbours(stages)), default=(best, stages))
            if found[0] >= best:
                return Swarm(tuple(tuple(sorted(stage, reverse=True)) for stage in stages))
            best, stages = found


def _neighbours(stages: Sequence[Sequence[float]]) -> Iterator[list[list[float]]]:
    """These stages with one device in another one, or with two devices exchanged; none is left without."""
    places = [(stage, number) for stage, row in enumerate(stages) for number in range(len(row))]
    for stage, number in places:
        for to in range(len(stages) if len(stages[stage]) > 1 else 0):
            changed = [list(row) for row in stages]
            changed[to].append(changed[stage].pop(number))
            yield changed
    for (stage, number), (other, place) in combinations(places, 2):
        changed = [list(row) for row in stages]
        changed[stage][number], changed[other][place] = stages[other][place], stages[stage][number]
        yield changed


def work_of(layers: Sequence[LayerSpec], chunks: Sequence[range]) -> list[float]:
    """Operations of each stage's forward and backward of a microbatch."""
    return [sum(sum(layers[i].segments) * (1 + sum(layers[i].backward)) for i in chunk) for chunk in chunks]


def generate_swarm(layers: Sequence[LayerSpec], swarm: Swarm, dealt: Dealt) -> Graph:
    """The step of these layers, which have no transfers inside. In its layout every device is one of the pipeline's."""
    if any(layer.transfers for layer in layers):
        raise UserError("the layers of a swarm communicate between stages only: no tp, cp or ep")
    layout = Layout(pp=len(swarm.speeds), speeds=swarm.speeds, microbatches=len(dealt[0]))
    chunks = swarm.chunks(layers)
    stage_of = [stage for stage, chunk in enumerate(chunks) for _ in chunk]
    ops = [
        *(op for m in range(layout.microbatches) for op in _forward(layers, stage_of, dealt, swarm, m)),
        *(op for m in range(layout.microbatches) for op in _backward(layers, stage_of, dealt, m)),
        *_update(layers, stage_of, dealt, swarm),
    ]
    graph = Graph(tuple(ops), tuple(layers), layout)
    graph.check()
    return graph


def _forward(layers: Sequence[LayerSpec], stage_of: Sequence[int], dealt: Dealt, swarm: Swarm, m: int) -> Iterator[Op]:
    for i, layer in enumerate(layers):
        stage = stage_of[i]
        here, before = dealt[stage][m], dealt[stage_of[i - 1]][m] if i else -1
        deps: tuple[OpKey, ...] = (OpKey(Kind.FORWARD, i - 1, m),) if i else ()
        if i and before != here:
            yield from _message(i - 1, m, FORWARD, before, here, layers[i - 1].output, deps)
            deps = (OpKey(Kind.RECV, i - 1, m, direction=FORWARD),)
        made = (_own(Kind.OPTIMIZE, i, here - swarm.firsts[stage]),) if layer.weights else ()
        amount = sum(layer.segments)
        yield Op(OpKey(Kind.FORWARD, i, m), Kind.FORWARD, here, COMPUTE, amount, deps, made, i, m, 0,
                 holds=layer.activations)  # fmt: skip


def _backward(layers: Sequence[LayerSpec], stage_of: Sequence[int], dealt: Dealt, m: int) -> Iterator[Op]:
    last = len(layers) - 1
    for i in range(last, -1, -1):
        layer, here = layers[i], dealt[stage_of[i]][m]
        deps: tuple[OpKey, ...] = (OpKey(Kind.FORWARD, i, m) if i == last else OpKey(Kind.BACKWARD, i + 1, m),)
        if i < last and (after := dealt[stage_of[i + 1]][m]) != here:
            yield from _message(i + 1, m, BACKWARD, after, here, layer.output, deps)
            deps = (OpKey(Kind.RECV, i + 1, m, direction=BACKWARD),)
        amount = sum(layer.segments) * sum(layer.backward)
        yield Op(OpKey(Kind.BACKWARD, i, m), Kind.BACKWARD, here, COMPUTE, amount, deps, (), i, m, 0,
                 frees=layer.activations)  # fmt: skip


def _message(i: int, m: int, way: str, source: int, sink: int, size: float, deps: tuple[OpKey, ...]) -> Iterator[Op]:
    send = Op(
        OpKey(Kind.SEND, i, m, direction=way), Kind.SEND, source, "pp", size, deps, layer=i, microbatch=m, peer=sink
    )
    yield send
    key = send.key._replace(kind=Kind.RECV)
    yield send._replace(key=key, kind=Kind.RECV, device=sink, peer=source, deps=())


def _update(layers: Sequence[LayerSpec], stage_of: Sequence[int], dealt: Dealt, swarm: Swarm) -> Iterator[Op]:
    """Sums of gradients among a stage's devices, and updates. A ring of n sends 2 (n - 1) / n of the gradients."""
    for i in reversed(range(len(layers))):
        layer, stage = layers[i], stage_of[i]
        ranks, first = len(swarm.stages[stage]), swarm.firsts[stage]
        made = tuple(OpKey(Kind.BACKWARD, i, m) for m in range(len(dealt[stage])))
        for place in range(ranks if layer.weights else 0):
            done = made
            if ranks > 1:
                key, size = _own("reduce", i, place), 2 * (ranks - 1) / ranks * layer.weights
                pieces = (Piece(i, 0, layer.weights),)
                yield Op(key, Kind.ALL_REDUCE, first + place, "dp", size, made, layer=i, pieces=pieces)
                done = (key,)
            yield Op(_own(Kind.OPTIMIZE, i, place), Kind.OPTIMIZE, first + place, COMPUTE, layer.weights, done, layer=i)


def _own(kind: str, i: int, place: int) -> OpKey:
    """The key of a layer's Op on one of its stage's devices."""
    return OpKey(kind, i, part=(place,))

"""Schedules of pipelines, as data: per device the order of its tasks.

    F  forward of one chunk of layers for one microbatch       B  its backward, or apart:
    X  backward, gradients of inputs (which the previous device needs)           W  of weights (which none needs)

    1f1b, 3 devices, 4 microbatches                       zb: W fills what would be idle
    0  F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3                0  F0 F1 F2 .. X0 W0 F3 X1 W1 ..
    1     F0 F1 .. B0 F2 B1 F3 B2 .. B3                   1     F0 F1 X0 F2 W0 X1 ..
    2        F0 B0 F1 B1 F2 B2 F3 B3                      2        F0 X0 F1 X1 W0 ..

Chunks of layers are numbered in the order of the forward pass. They are in a loop (chunk c on device c mod p), or in a
V (down the devices and back up, so that the first and the last chunk share device 0). Devices run their order as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from syntony.base.command import UserError
from syntony.overlap.step.pipelines.balanced import balanced
from syntony.overlap.step.pipelines.bidirectional import chimera
from syntony.overlap.step.pipelines.sequence import seq1f1b, terapipe
from syntony.overlap.step.pipelines.tasks import Orders, Pipeline, Task, Times, finish, needs, places
from syntony.overlap.step.pipelines.waves import hanayo


@lru_cache(maxsize=64)
def pipeline(
    name: str, devices: int, loops: int, microbatches: int, times: Times | None = None, slices: int = 1
) -> Pipeline:
    """The schedule `name` (a row of PIPELINES). Raises UserError if it does not exist for these numbers.

    times     for searched schedules; default: F, X and W take the same, messages nothing
    slices    of each microbatch's sequences
    """
    row = PIPELINES[name]
    if not row.loops and loops != 1:
        raise UserError(f"schedule {name} has one chunk of layers per device, not {loops}; interleaved takes loops")
    if not row.slices and slices != 1:
        cutting = " and ".join(name for name, row in PIPELINES.items() if row.slices)
        raise UserError(f"schedule {name} does not cut sequences, but slices is {slices}; {cutting} do")
    chunks = row.chunks(loops)
    units = microbatches * slices
    orders = row.order(devices, slices if row.slices else chunks, units, times or Times())
    return Pipeline(places(devices, chunks, row.valley), units, orders, row.twins, slices)


def _gpipe(p: int, v: int, m: int, times: Times) -> Orders:
    """Huang et al., GPipe (NeurIPS 2019)."""
    return tuple((*(Task("F", d, i) for i in range(m)), *(Task("B", d, i) for i in range(m))) for d in range(p))


def _breadth_first(p: int, v: int, m: int, times: Times) -> Orders:
    """Lamy-Poirier, Breadth-First Pipeline Parallelism (MLSys 2023): a chunk has all microbatches before the next."""
    return tuple(
        (
            *(Task("F", loop * p + d, i) for loop in range(v) for i in range(m)),
            *(Task("B", loop * p + d, i) for loop in reversed(range(v)) for i in range(m)),
        )
        for d in range(p)
    )


def _alternate(forwards: list[Task], backwards: list[Task], warmup: int) -> tuple[Task, ...]:
    """`warmup` forwards, then alternating forwards and backwards, then the rest."""
    order = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        order += [forward, backward]
    return (*order, *backwards[len(forwards) - min(warmup, len(forwards)) :])


def _1f1b(p: int, v: int, m: int, times: Times) -> Orders:
    """Narayanan et al., PipeDream (SOSP 2019), with a flush."""
    return tuple(
        _alternate([Task("F", d, i) for i in range(m)], [Task("B", d, i) for i in range(m)], min(m, p - d - 1))
        for d in range(p)
    )


def _interleaved(p: int, v: int, m: int, times: Times) -> Orders:
    """Narayanan et al., Megatron-LM (SC 2021), section 2.2: p microbatches per chunk, then the next chunk."""
    if m % p:
        raise UserError(
            f"schedule interleaved takes rounds of {p} microbatches, one per device; {m} is not a multiple of {p}"
        )

    def tasks(kind: str, device: int) -> list[Task]:
        loops = range(v) if kind == "F" else range(v - 1, -1, -1)
        return [
            Task(kind, loop * p + device, i + extra) for i in range(0, m, p) for loop in loops for extra in range(p)
        ]

    return tuple(
        _alternate(tasks("F", d), tasks("B", d), min(m * v, (p - d - 1) * (2 if v > 1 else 1) + (v - 1) * p))
        for d in range(p)
    )


def _dualpipe_v(p: int, v: int, m: int, times: Times) -> Orders:
    """DeepSeek-AI, DualPipe cut in half ("DualPipeV", 2025): a V in which every backward runs beside a forward."""
    if m < 2 * p:
        raise UserError(f"schedule dualpipe_v needs two microbatches per device; {m} are fewer than {2 * p}")

    def order(d: int) -> Iterator[Task]:
        chunks = (d, 2 * p - 1 - d)
        done = {(kind, side): 0 for kind in "FB" for side in (0, 1)}
        late: list[Task] = []

        def step(kind: str, side: int, split: bool = False) -> Task:
            number = done[kind, side]
            done[kind, side] += 1
            if split:
                late.append(Task("W", chunks[side], number))
            return Task("X" if split else kind, chunks[side], number)

        ahead = p - d - 1
        for _ in range(2 * ahead):
            yield step("F", 0)
        for _ in range(d + 1):
            yield from (step("F", 0), step("F", 1))
        for _ in range(ahead):
            yield from (step("B", 1, split=True), late.pop(0), step("F", 1))
        for _ in range(m - 2 * p + d + 1):
            yield from (step("F", 0), step("B", 1), step("F", 1), step("B", 0))
        for _ in range(ahead):
            yield from (step("B", 1), step("F", 1), step("B", 0))
        split = False
        for i in range(d + 1):
            split = split or (i == (d + 1) // 2 and d % 2 == 1)
            yield step("B", 1, split)
            split = split or (i == (d + 1) // 2 and d % 2 == 0)
            yield step("B", 0, split)
        for _ in range(ahead):
            yield from (late.pop(0), step("B", 0, split=True))
        yield from late

    return tuple(tuple(order(d)) for d in range(p))


def _zero_bubble(limit: Callable[[int, int], int], valley: bool) -> Callable[[int, int, int, Times], Orders]:
    """Qi et al., Zero Bubble Pipeline Parallelism (ICLR 2024), section 3.2, and ZBV, V-Half and V-Min in Pipeline
    Parallelism with Controllable Memory (NeurIPS 2024): backward in two, orders found by a greedy search in time, the
    best of several.

    limit    microbatches of chunks that a device may hold, of p devices and m microbatches
    """

    def search(p: int, v: int, m: int, times: Times) -> Orders:
        placed = places(p, v, valley)
        found = []
        for eager in (True, False):
            for patience in (0.0, times.weights / 2, times.weights):
                for climb in (True, False):
                    orders = _greedy(placed, m, times, limit(p, m), eager, patience, climb)
                    found.append((finish(Pipeline(placed, m, orders), times), orders))
        return min(found, key=lambda pair: pair[0])[1]

    return search


def _greedy(
    placed: tuple[int, ...], m: int, times: Times, limit: int, eager: bool, patience: float, climb: bool
) -> Orders:
    """A free device takes a ready backward, else a forward that memory allows, else weight gradients.

    eager      forwards come before backwards while the device holds less than its share
    patience   seconds that a device waits for the next input before it starts with weight gradients
    climb      of two forwards, prefers the one of the later chunk
    """
    p, chunks = max(placed) + 1, len(placed)
    mine = [[c for c in range(chunks) if placed[c] == d] for d in range(p)]
    ended: dict[Task, float] = {}
    orders: list[list[Task]] = [[] for _ in range(p)]
    count = [dict.fromkeys("FXW", 0) for _ in range(chunks)]
    free, held = [0.0] * p, [0] * p
    took = {"F": times.forward, "X": times.inputs, "W": times.weights}
    left = 3 * chunks * m

    def arrival(kind: str, chunk: int) -> float | None:
        """When the chunk's next task of that kind could begin; None: not known yet."""
        number = count[chunk][kind]
        if number == m:
            return None
        before = needs(Task(kind, chunk, number), chunks, True)
        if before is None:
            return 0.0
        if before not in ended:
            return None
        return ended[before] + times.message * (placed[before.chunk] != placed[chunk])

    while left:
        best: tuple[float, int, Task] | None = None
        for d in range(p):
            choices = []
            for chunk in mine[d]:
                # A first chunk's forward must leave room for the later chunks of microbatches already in flight.
                first = mine[d][0]
                coming = sum(count[first]["F"] - count[c]["F"] for c in mine[d][1:]) if chunk == first else 0
                share = held[d] < len(mine[d]) * (p - d if chunks == p else p)
                for kind, rank in (("X", 1), ("F", 0 if eager and share else 2), ("W", 3)):
                    when = arrival(kind, chunk)
                    if when is None or (kind == "F" and held[d] + coming >= limit):
                        continue
                    when = max(free[d], when) + (patience if kind == "W" else 0.0)
                    choices.append((when, rank, -chunk if climb else chunk, Task(kind, chunk, count[chunk][kind])))
            if choices:
                soonest = min(choice[0] for choice in choices)
                now = [choice for choice in choices if choice[0] <= soonest + 1e-12]
                when, _, _, task = min(now, key=lambda choice: choice[1:3])
                when = max(free[d], arrival(task.kind, task.chunk) or 0.0)
                if best is None or when < best[0]:
                    best = (when, d, task)
        if best is None:
            raise UserError(f"no zero-bubble order holds at most {limit} microbatches of chunks per device")
        when, d, task = best
        free[d] = ended[task] = when + took[task.kind]
        count[task.chunk][task.kind] += 1
        held[d] += (task.kind == "F") - (task.kind == "W")
        orders[d].append(task)
        left -= 1
    return tuple(tuple(order) for order in orders)


class _Row(NamedTuple):
    """A schedule.

    order     of p devices, v chunks each (if sequences are cut: v slices each), m microbatches
    loops     v may be more than 1
    valley    chunks are in one or several Vs
    twins, slices    as in Pipeline; slices: there may be several
    """

    order: Callable[[int, int, int, Times], Orders]
    loops: bool = False
    valley: bool = False
    twins: bool = False
    slices: bool = False

    def chunks(self, loops: int) -> int:
        """Chunks of the model per device in one direction."""
        return loops * (2 if self.valley else 1)


PIPELINES: Mapping[str, _Row] = {
    "gpipe": _Row(_gpipe),
    "1f1b": _Row(_1f1b),
    "bpipe": _Row(balanced(_1f1b)),
    "interleaved": _Row(_interleaved, loops=True),
    "breadth_first": _Row(_breadth_first, loops=True),
    "zb1p": _Row(_zero_bubble(lambda p, m: p, False)),
    "zb2p": _Row(_zero_bubble(lambda p, m: 2 * p, False)),
    "zbv": _Row(_zero_bubble(lambda p, m: 2 * p, True), valley=True),
    # Controllable Memory, section 3: half and a third of 1f1b's activations, plus those of a stage in transit.
    "v_half": _Row(_zero_bubble(lambda p, m: p + 2, True), valley=True),
    "v_min": _Row(_zero_bubble(lambda p, m: -(-2 * p // 3) + 2, True), valley=True),
    "dualpipe_v": _Row(_dualpipe_v, valley=True),
    "chimera": _Row(chimera, twins=True),
    "hanayo": _Row(hanayo, loops=True, valley=True),
    "terapipe": _Row(terapipe, slices=True),
    "seq1f1b": _Row(seq1f1b, slices=True),
}

"""Hanayo: the model in waves over the devices, down and up again, once or several times.

    2 devices, 2 waves    chunk   0  1  2  3  4  5  6  7
                          device  0  1  1  0  0  1  1  0

As in Chimera, a device has early and late chunks of the model, which fill each other's gaps, but every chunk exists
once. More waves make smaller chunks, so the first backward comes sooner: with p microbatches and a backward of two
forwards, (2 p - 2) / (3 p w + p - 1) of the time is idle (the orders here reach it; the formula is quoted from memory).
Liu et al., Hanayo (SC 2023), section 3.

The order is found by simulation: a free device takes a backward before a forward, then the earliest microbatch. With
more than p microbatches, either at most p are in flight, or rounds of p follow each other; whichever ends sooner.
"""

from __future__ import annotations

from syntony.overlap.step.pipelines.tasks import Orders, Pipeline, Task, Times, finish, needs, places


def hanayo(devices: int, chunks: int, microbatches: int, times: Times) -> Orders:
    """chunks: two per wave."""
    placed = places(devices, chunks, valley=True)
    found = [_in_time(placed, microbatches, times, deep) for deep in (False, True)]
    if microbatches > devices and microbatches % devices == 0:
        found.append(_rounds(_in_time(placed, devices, times, False), microbatches // devices, devices))
    return min(found, key=lambda orders: finish(Pipeline(placed, microbatches, orders), times))


def _rounds(order: Orders, count: int, size: int) -> Orders:
    return tuple(
        tuple(task._replace(microbatch=task.microbatch + size * number) for number in range(count) for task in tasks)
        for tasks in order
    )


def _in_time(placed: tuple[int, ...], microbatches: int, times: Times, shallow: bool) -> Orders:
    """shallow: of possible backwards, takes that of the earliest chunk, not of the earliest microbatch."""
    devices, chunks = max(placed) + 1, len(placed)
    took = {"F": times.forward, "B": times.inputs + times.weights}
    ended: dict[Task, float] = {}
    orders: list[list[Task]] = [[] for _ in range(devices)]
    count = {(kind, chunk): 0 for kind in "FB" for chunk in range(chunks)}
    free = [0.0] * devices

    def begins(kind: str, chunk: int) -> tuple[float, bool, int, int, Task] | None:
        """When the chunk's next task of the kind could begin, and the tie-breakers."""
        number = count[kind, chunk]
        entering = kind == "F" and chunk == 0
        if number == microbatches or (entering and number - count["B", 0] >= devices):
            return None
        task = Task(kind, chunk, number)
        before = needs(task, chunks, split=False)
        if before is not None and before not in ended:
            return None
        away = before is not None and placed[before.chunk] != placed[chunk]
        when = 0.0 if before is None else ended[before] + times.message * away
        return max(free[placed[chunk]], when), kind == "F", chunk if shallow else number, -chunk, task

    for _ in range(2 * chunks * microbatches):
        first = min(found for kind in "FB" for chunk in range(chunks) if (found := begins(kind, chunk)) is not None)
        when, task = first[0], first[-1]
        device = placed[task.chunk]
        free[device] = ended[task] = when + took[task.kind]
        count[task.kind, task.chunk] += 1
        orders[device].append(task)
    return tuple(map(tuple, orders))

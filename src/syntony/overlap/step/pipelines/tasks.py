"""Tasks of a pipeline, the order in which each device runs them, and when the last one ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from syntony.base.command import UserError

LEND, RETURN = ">", "<"


class Task(NamedTuple):
    """`kind` F, B, X or W of a chunk of layers, for one microbatch; or LEND, from which on the activations of its
    forward move to the device at the other end of the pipeline, and RETURN, from which on they come back."""

    kind: str
    chunk: int
    microbatch: int


class Times(NamedTuple):
    """Seconds (or any unit) of a chunk's forward, backward for inputs and for weights, and of a message."""

    forward: float = 1.0
    inputs: float = 1.0
    weights: float = 1.0
    message: float = 0.0


Orders = tuple[tuple[Task, ...], ...]


@dataclass(frozen=True)
class Pipeline:
    """places: the device of each chunk; orders: the tasks of each device, first to last.

    twins     the later half of the microbatches goes the other way: their chunk c is where chunk -1 - c of the others
              is, so every device has two chunks, and each chunk two devices
    slices    this many consecutive microbatches are the pieces of one, cut along the sequence: a piece's forward
              follows those of earlier pieces, its backward those of later ones
    """

    places: tuple[int, ...]
    microbatches: int
    orders: Orders
    twins: bool = False
    slices: int = 1

    def place(self, chunk: int, microbatch: int) -> int:
        """The device on which a chunk processes a microbatch."""
        back = self.twins and 2 * microbatch >= self.microbatches
        return self.places[-1 - chunk if back else chunk]

    def check(self) -> None:
        """Raises UserError unless every chunk processes every microbatch once, on its device, in a feasible order."""
        want = {(chunk, microbatch) for chunk in range(len(self.places)) for microbatch in range(self.microbatches)}
        for kinds in ("F", "BX", "BW"):
            found = [task[1:] for order in self.orders for task in order if task.kind in kinds]
            if len(found) != len(want) or set(found) != want:
                raise UserError(f"a pipeline must have one {kinds[-1]} of every chunk and microbatch")
        for device, order in enumerate(self.orders):
            for task in order:
                place = self.place(task.chunk, task.microbatch)
                if place != device:
                    raise UserError(f"{task} is in the order of device {device}, but lies on {place}")
            self._check_loans(order)
        finish(self, Times())

    def _check_loans(self, order: tuple[Task, ...]) -> None:
        """Loans are made after the forward, and come back before they are used."""
        place = {task: number for number, task in enumerate(order)}
        for task in (task for task in order if task.kind in LEND + RETURN):
            turns = [place.get(task._replace(kind=kind), -1) for kind in ("F", LEND, RETURN, "B")]
            if turns[0] < 0 or turns != sorted(turns) or self.slices > 1 or order.count(task) > 1:
                raise UserError(f"{task} must stand between a forward, a return and a backward, once each")


def needs(task: Task, chunks: int, split: bool) -> Task | None:
    """The task of the same microbatch that must precede it in the chain of chunks; None if there is none."""
    if task.kind == "F":
        return task._replace(chunk=task.chunk - 1) if task.chunk else None
    if task.kind == "W":
        return task._replace(kind="X")
    last = task.chunk == chunks - 1
    return task._replace(kind="F") if last else task._replace(kind="X" if split else "B", chunk=task.chunk + 1)


def _piece_before(task: Task, slices: int) -> Task | None:
    """The same task of the previous piece of the sequence in its direction; None if there is none."""
    step = -1 if task.kind == "F" else 1
    other = task._replace(microbatch=task.microbatch + step)
    alike = task.kind in "FBX" and other.microbatch // slices == task.microbatch // slices
    return other if alike else None


def finish(pipeline: Pipeline, times: Times) -> float:
    """When the last task ends. Raises UserError for an order in which devices wait for each other forever."""
    took = {"F": times.forward, "X": times.inputs, "W": times.weights, "B": times.inputs + times.weights}
    split = {task[1:]: task.kind == "X" for order in pipeline.orders for task in order if task.kind in "BX"}
    ended: dict[Task, float] = {}
    free, at = [0.0] * len(pipeline.orders), [0] * len(pipeline.orders)
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(pipeline.orders):
            while at[device] < len(order):
                task = order[at[device]]
                if task.kind in LEND + RETURN:
                    at[device] += 1
                    continue
                before = needs(task, len(pipeline.places), split.get((task.chunk + 1, task.microbatch), False))
                piece = _piece_before(task, pipeline.slices)
                if (before is not None and before not in ended) or (piece is not None and piece not in ended):
                    break
                start = free[device]
                if before is not None:
                    away = pipeline.place(before.chunk, before.microbatch) != device
                    start = max(start, ended[before] + times.message * away)
                free[device] = ended[task] = start + took[task.kind]
                at[device] += 1
                moved = True
    for device, order in enumerate(pipeline.orders):
        if at[device] < len(order):
            raise UserError(f"device {device} of the pipeline waits forever with {order[at[device]]}")
    return max(free)


def places(devices: int, chunks: int, valley: bool) -> tuple[int, ...]:
    """The device of each chunk, equally many per device: in a loop, or in a V; several Vs are a wave."""
    down = tuple(range(devices))
    return (down + down[::-1]) * (chunks // 2) if valley else down * chunks

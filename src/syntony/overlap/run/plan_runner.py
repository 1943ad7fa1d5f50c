"""Runs a Plan's communication. The trainer only calls `ready(op)` and `wait(op)`; the lanes do the rest.

    trainer          backward 3  ready(reduce.3)   backward 2  ready(reduce.2)  ..       wait(reduce.0)  forward 0
    lane dp  (C++)                    [reduce.3/0]     [reduce.2/0]  [reduce.3/1] ..  [reduce.0]
                                                                     `- in the plan's order, not that of readiness

A lane is one torch group (csrc/torch/queues): strictly the plan's order, at most the plan's window of bytes in flight.
So ranks can never wait for each other in different orders, whatever each of them computes first. Messages between
pipeline stages have a lane for each peer and direction. Data that a stage has lent to another (step/loans.py) is sent
back by the other's lane, in its turn, as no thread there is sure to be free to request it.

Sums of gradients (ops with `pieces`) are canonical: a pairwise tree over ranks, which gives the bits of one process and
sends the bytes of a ring. Syntony's backend has an algorithm for them. On other backends ranks exchange their parts and
add them here (csrc/torch/queues/tree_sum.hpp); an all_reduce is that sum plus an all_gather of it, in a separate lane
and group (`dp.gather`), so that its second half never waits for another op's first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from syntony import _torch
from syntony.base.command import UserError
from syntony.collectives.torch_backend.backend import communicator_of
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import LENT, RETURNED, OpKey
from syntony.overlap.step.plan import Plan

_MOVES = {
    Kind.ALL_REDUCE: _torch.Move.ALL_REDUCE,
    Kind.REDUCE_SCATTER: _torch.Move.REDUCE_SCATTER,
    Kind.ALL_GATHER: _torch.Move.ALL_GATHER,
    Kind.ALL_TO_ALL: _torch.Move.ALL_TO_ALL,
    Kind.BROADCAST: _torch.Move.BROADCAST,
    Kind.SHIFT: _torch.Move.ALL_TO_ALL,  # in which all rows go to one rank
    Kind.SEND: _torch.Move.SEND,
    Kind.RECV: _torch.Move.RECV,
}
_SUMS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)
_PATIENCE = timedelta(milliseconds=200)  # between two checks for Ctrl-C


class OverlapError(RuntimeError):
    """Communication of a step has failed. The message names the step, the op, its lane, and the group's error."""


class Record(NamedTuple):
    """One run of an op: time.monotonic() at which it was made ready, was launched, and ended. For computation: at which
    its turn came, its dependencies were met, and it ended."""

    key: OpKey
    step: int
    ready: float
    begin: float
    end: float


def gather_lane(lane: str) -> str:
    """The lane, and the key of the group, of the second half of canonical all_reduces on `lane`."""
    return f"{lane}.gather"


def urgency(plan: Plan) -> dict[str, str]:
    """The priority of each lane's groups in Syntony's backend: `high`, `normal` or `low`, as the plan ranks them."""
    lanes = {lane for _, lane in plan.orders if lane != COMPUTE}
    ranks = sorted({plan.priorities.get(lane, 0) for lane in lanes})
    words = ("normal",) if len(ranks) == 1 else ("high", "normal", "low")
    return {lane: words[min(ranks.index(plan.priorities.get(lane, 0)), len(words) - 1)] for lane in lanes}


class PlanRunner:
    """One rank's communication under a Plan.

    device     the plan's device that this rank is
    groups     a torch group of any backend for every lane that the device has; for canonical all_reduces on `dp`, a
               second one of the same ranks as `dp.gather`, unless the backend is Syntony's. A lane's group must not be
               used by anybody else
    canonical  sum gradients as a pairwise tree over ranks; otherwise in the backend's order

    Used by one thread. Raises UserError if a group is missing, OverlapError if communication fails.
    """

    def __init__(
        self, plan: Plan, device: int, groups: Mapping[str, dist.ProcessGroup], *, canonical: bool = True
    ) -> None:
        if plan.simulated:
            raise UserError(f"this plan can only be simulated: {plan.simulated}")
        self.plan = plan
        self.step = -1
        self._numbers: list[int] = []  # the user's number of each step
        self._index: dict[OpKey, int] = {}
        self._slots: list[tuple[str, _torch.Move, int, int, int, int, bool, int]] = []  # arguments of _torch.Slot
        self._keys: list[OpKey] = []
        self._bound: dict[OpKey, tuple[Tensor, Tensor]] = {}
        self._actions: dict[int, Callable[[], None]] = {}
        self._afterwards: Callable[[], None] | None = None
        self._last: dict[OpKey, int] = {}  # by op: the slot that completes it
        self._missing: dict[OpKey, set[OpKey]] = {}
        self._halves: dict[OpKey, Record] = {}
        orders: dict[str, tuple[dist.ProcessGroup, int, list[int]]] = {}  # group, window, slots
        tags = _tags(plan)
        for (owner, lane), keys in plan.orders.items():
            if owner != device or lane == COMPUTE:
                continue
            if lane not in groups:
                raise UserError(f"the plan has a lane {lane!r}, and no group was given for it")
            window = plan.windows.get(lane, 0)
            ours = _backend_of(groups[lane]).name() == "syntony"
            if ours:
                communicator_of(groups[lane]).set_canonical(canonical)
            if lane == "islands":  # not in every step: those that the plan defers end an exchange, and begin none
                keys = tuple(sorted(keys, key=lambda key: plan.graph.deferred(plan.graph[key])))
            for key in keys:
                op = plan.graph[key]
                title = f"{lane}.{op.kind}.{op.peer}" if op.kind in (Kind.SEND, Kind.RECV) else lane
                queue = orders.setdefault(title, (groups[lane], window, []))[2]
                if not canonical or not op.pieces or ours or op.kind not in _SUMS:
                    self._add(queue, op, _MOVES[op.kind], tags.get(key, 0))
                    continue
                halves = op.kind is Kind.ALL_REDUCE
                self._add(queue, op, _torch.Move.EXCHANGE_SUM, then=len(self._slots) + 1 if halves else -1)
                if halves:
                    second = gather_lane(lane)
                    if second not in groups:
                        raise UserError(f"canonical all_reduces on lane {lane!r} need a second group, {second!r}")
                    self._add(orders.setdefault(second, (groups[second], 0, []))[2], op, _torch.Move.ALL_GATHER)
        for key, place in self._index.items():
            if (key.kind, key.direction) == (Kind.RECV, LENT):
                then = self._index.get(key.sender._replace(direction=RETURNED), -1)
                if then < 0:
                    raise UserError(f"the plan has {key!r}, and nothing that gives back what is lent")
                self._slots[place] = (*self._slots[place][:5], then, False, 1)
        self.groups = groups
        self._lanes = _torch.Lanes(
            [_torch.Slot(*slot) for slot in self._slots],
            [_torch.Order(title, _backend_of(group), ops, window) for title, (group, window, ops) in orders.items()],
        )

    def _add(self, queue: list[int], op: Op, move: _torch.Move, tag: int = 0, then: int = -1) -> None:
        """Adds a slot to a queue. `then`: the slot that begins when this one has ended."""
        place = len(self._slots)
        runs = max(1, self.plan.graph.layout.delay) if op.lane == "islands" and self.plan.graph.layout else 1
        self._slots.append((str(op.key), move, int(op.amount), op.peer, tag, then, then < 0, runs))
        self._keys.append(op.key)
        self._index.setdefault(op.key, place)
        self._last[op.key] = place
        queue.append(place)

    # ---- what the trainer says --------------------------------------------------------------------------------------

    def bind(self, key: OpKey, input: Tensor, output: Tensor | None = None) -> None:
        """Sets the memory of a planned op for all steps, if it does not change. Contiguous; shapes as for ready()."""
        self._bound[key] = (input, input if output is None else output)

    def then(self, key: OpKey, action: Callable[[], None]) -> None:
        """After every end of a planned op, the next caller of wait() or poll() first runs `action`."""
        self._actions[self._last[key]] = action

    def afterwards(self, action: Callable[[], None]) -> None:
        """Runs `action` once after the actions of all ops that have ended together."""
        self._afterwards = action

    def begin_step(self, number: int = -1) -> None:
        """Ops may be made ready again; those of the last step may still be in flight.

        number    the step's number in errors; -1: one more than the last
        """
        self.step += 1
        self._numbers.append(number if number >= 0 else 1 + self._numbers[-1] if self._numbers else 0)
        self._missing = {key: set(self.plan.graph[key].sources) for key in self._index}

    def ready(
        self,
        key: OpKey,
        input: Tensor | None = None,
        output: Tensor | None = None,
        input_rows: Sequence[int] = (),
        output_rows: Sequence[int] = (),
    ) -> None:
        """An op of the recorded step may start, with its parts in the plan, and unions of which it is the last.

        Without tensors, the bound ones are used. all_reduce, broadcast, send and recv have only `input`, a canonical
        all_reduce also this rank's part of it as `output`; reduce_scatter and all_gather an `output` of 1/n and n times
        its size; all_to_all equal parts, or rows of the first dimension.
        """
        for part in self._parts(key):
            missing = self._missing[part]
            missing.discard(key)
            if part == key:
                missing.clear()
            if missing:
                continue
            if input is None:
                if part not in self._bound:
                    raise ValueError(f"op {part!r} is made ready without tensors and none are bound to it")
                first, second = self._bound[part]
            else:
                first, second = input, input if output is None else output
            try:
                self._lanes.ready(self._index[part], first, second, input_rows, output_rows)
            except RuntimeError as error:
                self._failed(error)

    def wait(self, key: OpKey, behind: int = 0) -> None:
        """Returns when every run of an op (or of its parts) that was made ready, except for the last `behind` ones, has
        ended, including actions."""
        for part in self._parts(key):
            place, done = self._last[part], False
            while not done:
                try:
                    done, ended = self._lanes.wait(place, _PATIENCE, behind)
                except RuntimeError as error:
                    self._failed(error)
                self._act(ended)

    def poll(self) -> None:
        """Runs the actions of ops that have ended."""
        try:
            ended = self._lanes.ended()
        except RuntimeError as error:
            self._failed(error)
        self._act(ended)

    def records(self) -> list[Record]:
        """The ops that have ended since the last call; of two halves, from the first's start to the second's end."""
        found: list[Record] = []
        for place, step, *times in self._lanes.take_records():
            key = self._keys[place]
            record = Record(key, step, *(1e-9 * time for time in times))
            if place != self._last[key]:
                self._halves[key] = record
                continue
            first = self._halves.pop(key, record)
            found.append(record._replace(ready=first.ready, begin=first.begin))
        return found

    def close(self) -> None:
        """Ends the lanes' threads; ops in flight are aborted."""
        self._lanes.close()

    def __enter__(self) -> PlanRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _parts(self, key: OpKey) -> Sequence[OpKey]:
        if key in self._index:
            return (key,)
        return [part for part in self.plan.parts.get(key, ()) if part in self._index]

    def _act(self, ended: Sequence[int]) -> None:
        for place in ended:
            action = self._actions.get(place)
            if action is not None:
                action()
        if ended and self._afterwards is not None:
            self._afterwards()

    def _failed(self, error: RuntimeError) -> NoReturn:
        """Raises a group's error as an OverlapError that names step and op, if it belongs to one."""
        place, step = self._lanes.failed()
        if place < 0:
            raise error
        op = self.plan.graph[self._keys[place]]
        lane = f"lane {op.lane!r}{_numbering(self.groups[op.lane])}"
        number = self._numbers[step if op.lane != "islands" else -1]  # exchanges of islands are not in every step
        raise OverlapError(f"step {number}: {op.kind} of {op.key} on {lane}: {error}") from error


def _numbering(group: dist.ProcessGroup) -> str:
    """Names the ranks of a group in the world's numbers, since its errors use its own numbers."""
    members = dist.get_process_group_ranks(group)
    if members == list(range(len(members))):
        return ""
    return f" (whose ranks from 0 on are the world's {', '.join(map(str, members))})"


def _backend_of(group: dist.ProcessGroup) -> Any:
    return group._get_backend(torch.device("cpu"))


def _tags(plan: Plan) -> dict[OpKey, int]:
    """A tag for every message, the same at both ends."""
    messages = [op.key for op in plan.graph if op.kind in (Kind.SEND, Kind.RECV)]
    numbers = {sent: number for number, sent in enumerate(sorted({key.sender for key in messages}), start=1)}
    return {key: numbers[key.sender] for key in messages}

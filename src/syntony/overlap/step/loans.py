"""Activations of a microbatch, lent to the device at the other end of the pipeline (BPipe).

    lender      F0  F1  F2      F3  B0  F4 ..            F3 waits until 1 has left, because it needs the room
                     `-send.1.l      `recv.1.r           returns during the task before its backward
    borrower         recv.1.l        send.1.r            a place, which is free again when its contents have left

Activations of all layers of a chunk are one message, with direction `l`, and `r` on their way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import LENT, RETURNED, OpKey
from syntony.overlap.step.pipelines.tasks import LEND, RETURN, Task


class Left(NamedTuple):
    """The activations of a task: the first of its layers, bytes, and Ops that must have ended before they may leave."""

    layer: int
    bytes: float
    after: tuple[OpKey, ...]


def lent(
    order: Sequence[Task], pair: tuple[int, int], end: Callable[[Task], OpKey], left_by: Callable[[Task], Left]
) -> tuple[list[Op], Mapping[Task, Sequence[OpKey]]]:
    """Both ends of all messages with which a device lends in this order of its tasks, and of those back; and by task
    the ends that it waits for.

    pair       the device, and the one that it lends to
    end        the last Op that computes a task
    left_by    the activations of a forward
    """
    ops, waits = list[Op](), dict[Task, list[OpKey]]()
    going, gone = list[OpKey](), list[OpKey]()  # sent since the last task, and before it
    free, kept = list[OpKey](), dict[Task, OpKey]()  # returns that free a place, and the contents of places
    fresh = list[int]()  # rows that arrive in a place not used before in this step
    last: Task | None = None
    for task in order:
        made = task._replace(kind="F")
        ended = [end(last)] if last is not None and task.kind in LEND + RETURN else []
        if task.kind == LEND:
            left, place = left_by(made), [free.pop(0)] if free else []
            send, receive = _ends(LENT, left, task.microbatch, pair, dict.fromkeys([*ended, *left.after]), place)
            going.append(send.key)
            kept[made] = receive.key
            ops += [send, receive]
            fresh += [] if place else [len(ops) - 1]
        elif task.kind == RETURN:
            back = left_by(made)
            send, receive = _ends(RETURNED, back, task.microbatch, pair[::-1], [kept.pop(made)], [*ended, *gone])
            free.append(send.key)
            waits[task._replace(kind="B")] = [receive.key]
            ops += [send, receive]
        else:
            waits.setdefault(task, []).extend(gone)
            last, going, gone = task, [], going
    for row, left_place in zip(fresh, free, strict=True):
        ops[row] = ops[row]._replace(lagged=(left_place,))
    return ops, waits


def _ends(
    way: str, left: Left, m: int, pair: tuple[int, int], ready: Iterable[OpKey], room: Iterable[OpKey]
) -> tuple[Op, Op]:
    """A message from one device to the other."""
    key = OpKey(Kind.SEND, left.layer, m, direction=way)
    send = Op(key, Kind.SEND, pair[0], "pp", left.bytes, tuple(ready), layer=left.layer, microbatch=m, peer=pair[1])
    receive = send._replace(
        key=key._replace(kind=Kind.RECV), kind=Kind.RECV, device=pair[1], deps=tuple(room), peer=pair[0]
    )
    return send._replace(frees=left.bytes), receive._replace(holds=left.bytes)

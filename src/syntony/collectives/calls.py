"""What a call may say: every argument is looked at before anything is sent, and a wrong one gets a sentence.

All faults are UsageError.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from syntony import _core
from syntony.collectives.buffers import Buffer, UsageError, overlap

OPS = {name: name for name in _core.REDUCE_OPS} | {"avg": "sum"}  # what the core adds with, by what a caller says

Block = tuple[int, int, int]
"""Address where it starts, address where it ends (0: not at this rank), elements."""


def exchanged(rank: int, source: Buffer, target: Buffer, sent: Sequence[int], received: Sequence[int]) -> None:
    """An all_to_all may run in place where each part is as large as the one that takes its place."""
    if overlap(source, target) and (source.address != target.address or sent != received):
        raise _overlapping("all_to_all")
    if sent[rank] != received[rank]:
        raise UsageError(
            f"rank {rank} sends {sent[rank]} elements to itself in all_to_all and expects {received[rank]}"
        )


def alike(collective: str, part: Buffer, whole: Buffer, elements: int) -> None:
    """One element type, and `elements` in the whole."""
    if part.dtype != whole.dtype:
        raise UsageError(f"{collective} got {part.dtype} and {whole.dtype}; both arrays must have one element type")
    if whole.elements != elements:
        raise UsageError(f"{collective} needs {elements} elements where it got an array of {whole.elements}")


def divided(collective: str, rank: int, part: Buffer, whole: Buffer, sizes: Sequence[int]) -> None:
    """The whole consists of parts of these sizes, one a rank; `part` is this rank's."""
    alike(collective, part, whole, sum(sizes))
    if part.elements != sizes[rank]:
        raise UsageError(f"{collective}: rank {rank} has {part.elements} elements, its count says {sizes[rank]}")


def sizes(collective: str, counts: Sequence[int] | None, mine: int, ranks: int) -> list[int]:
    """Elements of each rank: its count, or without counts as many as here."""
    if counts is None:
        return [mine] * ranks
    found = [whole(count) for count in counts]
    if len(found) != ranks or min(found) < 0:
        raise UsageError(f"{collective} takes one count for each of the {ranks} ranks, not {list(counts)}")
    return found


def reduction(collective: str, op: str, buffer: Buffer) -> str:
    """What the core calls the op."""
    if op not in OPS:
        raise UsageError(f"unknown op {op!r} for {collective}: possible are {', '.join(OPS)}")
    if op == "avg" and buffer.dtype == "bool":
        raise UsageError(f"avg of bool has no meaning in {collective}")
    return OPS[op]


def apart(collective: str, buffers: Sequence[Buffer], blocks: Sequence[Block]) -> None:
    """The input and the output lie apart, or each block starts where it ends."""
    first, last = buffers[0], buffers[-1]
    if (
        first.address != last.address
        and overlap(first, last)
        and any(source and target and source != target for source, target, _ in blocks)
    ):
        raise _overlapping(collective)


def member(what: str, rank: Any, ranks: int) -> int:
    number = whole(rank)
    if not 0 <= number < ranks:
        raise UsageError(f"{what} is rank {rank!r}; this group has the ranks 0 to {ranks - 1}")
    return number


def parts(collective: str, partition: int | None) -> int:
    """Bytes of a part; 0 for None."""
    if partition is not None and whole(partition) < 1:
        raise UsageError(f"the partition of {collective} is a number of bytes above 0, not {partition!r}")
    return partition or 0


def tag(number: Any) -> int:
    if not 0 <= whole(number) < 1 << 64:
        raise UsageError(f"a tag is a whole number from 0 to 2^64 - 1, not {number!r}")
    return index(number)


def seconds(timeout: float | None) -> float:
    """0, which is the group's own, for None."""
    if timeout is None:
        return 0.0
    if not timeout > 0:
        raise UsageError(f"a timeout is a number of seconds above 0, not {timeout!r}")
    return timeout


def whole(number: Any) -> int:
    """-1, which nobody takes, for what is no whole number."""
    try:
        return index(number)
    except TypeError:
        return -1


def _overlapping(collective: str) -> UsageError:
    return UsageError(f"the input and the output of {collective} overlap, and not block on block: keep them apart")

"""Argument checks: every argument is checked before anything is sent, and a wrong one is explained in a sentence.

All of them raise UsageError.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from syntony import _core
from syntony.collectives.buffers import Buffer, UsageError, overlap

OPS = {name: name for name in _core.REDUCE_OPS} | {"avg": "sum"}  # by the caller's op: the op that the core runs

Block = tuple[int, int, int]
"""Start address in one buffer, start address in the other (0: not at this rank), elements."""


def exchanged(rank: int, source: Buffer, target: Buffer, sent: Sequence[int], received: Sequence[int]) -> None:
    """An in-place all_to_all requires each part to be as large as the one that replaces it."""
    if overlap(source, target) and (source.address != target.address or sent != received):
        raise _overlapping("all_to_all")
    if sent[rank] != received[rank]:
        raise UsageError(
            f"rank {rank} sends {sent[rank]} elements to itself in all_to_all and expects {received[rank]}"
        )


def alike(collective: str, part: Buffer, whole: Buffer, elements: int) -> None:
    """Both have the same element type, and `whole` has `elements` elements."""
    if part.dtype != whole.dtype:
        raise UsageError(f"{collective} got {part.dtype} and {whole.dtype}; both arrays must have one element type")
    if whole.elements != elements:
        raise UsageError(f"{collective} needs {elements} elements where it got an array of {whole.elements}")


def divided(collective: str, rank: int, part: Buffer, whole: Buffer, sizes: Sequence[int]) -> None:
    """The whole consists of one part per rank with these sizes; `part` belongs to this rank."""
    alike(collective, part, whole, sum(sizes))
    if part.elements != sizes[rank]:
        raise UsageError(f"{collective}: rank {rank} has {part.elements} elements, its count says {sizes[rank]}")


def sizes(collective: str, counts: Sequence[int] | None, mine: int, ranks: int) -> list[int]:
    """Elements of each rank: its count, or this rank's number if no counts are given."""
    if counts is None:
        return [mine] * ranks
    found = [whole(count) for count in counts]
    if len(found) != ranks or min(found) < 0:
        raise UsageError(f"{collective} takes one count for each of the {ranks} ranks, not {list(counts)}")
    return found


def reduction(collective: str, op: str, buffer: Buffer) -> str:
    """The core's name of the op."""
    if op not in OPS:
        raise UsageError(f"unknown op {op!r} for {collective}: possible are {', '.join(OPS)}")
    if op == "avg" and buffer.dtype == "bool":
        raise UsageError(f"avg of bool has no meaning in {collective}")
    return OPS[op]


def apart(collective: str, buffers: Sequence[Buffer], blocks: Sequence[Block]) -> None:
    """The input and the output do not overlap, or each block starts at the same address in both."""
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
    """Bytes of a part; None becomes 0."""
    if partition is not None and whole(partition) < 1:
        raise UsageError(f"the partition of {collective} is a number of bytes above 0, not {partition!r}")
    return partition or 0


def tag(number: Any) -> int:
    if not 0 <= whole(number) < 1 << 64:
        raise UsageError(f"a tag is a whole number from 0 to 2^64 - 1, not {number!r}")
    return index(number)


def seconds(timeout: float | None) -> float:
    """None becomes 0, which stands for the group's timeout."""
    if timeout is None:
        return 0.0
    if not timeout > 0:
        raise UsageError(f"a timeout is a number of seconds above 0, not {timeout!r}")
    return timeout


def whole(number: Any) -> int:
    """Anything but a whole number becomes -1, which every caller rejects."""
    try:
        return index(number)
    except TypeError:
        return -1


def _overlapping(collective: str) -> UsageError:
    return UsageError(f"the input and the output of {collective} overlap, and not block on block: keep them apart")

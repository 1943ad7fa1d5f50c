"""Positions of a tensor's elements: contiguous runs in the whole tensor, and where each begins in some memory.

    whole tensor, row by row      0 1 2 3 | 4 5 6 7 | 8 9 ..       4 columns
    a block of 2 columns              2 3       6 7       ..       runs [2, 4) at 0, [6, 8) at 2, ..

Blocks of tensor parallelism, shards of a flat buffer and chunks of a file are all such runs. Cut wherever any run
begins or ends, a tensor becomes parts that each rank has or lacks: columns of a table, on which NumPy computes sets,
whatever the layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Runs = NDArray[np.int64]
"""(n, 3): elements [begin, end) of the whole tensor, and the position of `begin` in memory. In order, disjoint."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a block of a tensor begins, and its shape."""

NOTHING: Runs = np.empty((0, 3), np.int64)


def runs_of(shape: Sequence[int], box: Box, at: int = 0) -> Runs:
    """The runs of a block that is stored row by row, from `at` on."""
    begins, sizes = box
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    axis = len(shape) - 1
    while axis and sizes[axis] == shape[axis]:
        axis -= 1
    starts = np.array([sum(begin * stride for begin, stride in zip(begins, strides, strict=True))], np.int64)
    for size, stride in zip(sizes[:axis], strides, strict=False):
        starts = (starts[:, None] + np.arange(size) * stride).ravel()
    length = sizes[axis] * strides[axis]
    return np.stack([starts, starts + length, at + np.arange(len(starts)) * length], 1)


def within(runs: Runs, places: Iterable[tuple[int, int]]) -> Runs:
    """The elements that lie in memory at [begin, end) of one of the places."""
    found = [NOTHING]
    for begin, end in places:
        first = np.maximum(begin - runs[:, 2], 0)
        last = np.minimum(end - runs[:, 2], runs[:, 1] - runs[:, 0])
        there = first < last
        first, last = first[there], last[there]
        found.append(np.stack([runs[there, 0] + first, runs[there, 0] + last, runs[there, 2] + first], 1))
    return joined(found)


def joined(every: Sequence[Runs]) -> Runs:
    """The union of several, in order."""
    rows = np.concatenate(every)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    before = np.maximum.accumulate(np.concatenate([[0], rows[:-1, 1]])) if len(rows) else rows[:, 0]
    twice = np.clip(before - rows[:, 0], 0, None)
    found: Runs = rows + np.stack([twice, np.zeros_like(twice), twice], 1)
    return found[found[:, 0] < found[:, 1]]


def edges_of(every: Iterable[Runs]) -> Integers:
    """Where any run begins or ends: part i is elements [edges[i], edges[i + 1])."""
    return np.unique(np.concatenate([NOTHING[:, 0], *(runs[:, :2].ravel() for runs in every)]))


def has(runs: Runs, edges: Integers) -> NDArray[np.bool_]:
    """By part: whether it is in the runs."""
    steps = np.zeros(len(edges), np.int64)
    steps[np.searchsorted(edges, runs[:, 0])] += 1
    np.subtract.at(steps, np.searchsorted(edges, runs[:, 1]), 1)
    return steps.cumsum()[:-1] > 0


def stretches(runs: Runs, edges: Integers, which: NDArray[np.bool_]) -> Integers:
    """The positions of parts in the memory of a rank that has them: (n, 2) rows of place and size, in global order."""
    parts = np.flatnonzero(which)
    if not len(parts):
        return NOTHING[:, :2]
    row = np.searchsorted(runs[:, 0], edges[parts], "right") - 1
    first = np.flatnonzero(np.concatenate([[True], (np.diff(parts) != 1) | (np.diff(row) != 0)]))
    last = np.append(first[1:], len(parts)) - 1
    begin, end = edges[parts[first]], edges[parts[last] + 1]
    return np.stack([runs[row[first], 2] + begin - runs[row[first], 0], end - begin], 1)


def spans(edges: Integers, which: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The elements [begin, end) of neighbouring parts."""
    steps = np.diff(np.concatenate([[0], which.astype(np.int64), [0]]))
    return list(zip(edges[steps == 1].tolist(), edges[steps == -1].tolist(), strict=True))


def boxes(shape: Sequence[int], every: Iterable[tuple[int, int]]) -> list[Box]:
    """Blocks that together are these runs of a tensor, in the same order: few, if the runs are rows of blocks."""
    found = [box for begin, end in every for box in _boxes(shape, begin, end)]
    for axis in reversed(range(len(shape))):
        merged: list[Box] = []
        for begins, sizes in found:
            if merged and _follows(merged[-1], (begins, sizes), axis):
                before, size = merged.pop()
                begins, sizes = before, (*size[:axis], size[axis] + sizes[axis], *size[axis + 1 :])
            merged.append((begins, sizes))
        found = merged
    return found


def _boxes(shape: Sequence[int], begin: int, end: int) -> list[Box]:
    """The blocks of one run: the rest of a row, whole rows, the beginning of a row."""
    if begin >= end:
        return []
    if len(shape) == 1:
        return [((begin,), (end - begin,))]
    row = int(np.prod(shape[1:]))
    first, last = -(-begin // row), end // row
    if first > last:
        return _in_row(shape, begin, end, row)
    middle = [((first, *(0 for _ in shape[1:])), (last - first, *shape[1:]))] if first < last else []
    return [*_in_row(shape, begin, first * row, row), *middle, *_in_row(shape, last * row, end, row)]


def _in_row(shape: Sequence[int], begin: int, end: int, row: int) -> list[Box]:
    at = begin // row
    return [((at, *b), (1, *s)) for b, s in _boxes(shape[1:], begin - at * row, end - at * row)]


def _follows(one: Box, other: Box, axis: int) -> bool:
    (a, sizes), (b, others) = one, other
    return a[axis] + sizes[axis] == b[axis] and all(
        a[i] == b[i] and sizes[i] == others[i] for i in range(len(a)) if i != axis
    )

"""Checks that the collectives of a group give correct results, and measures how long each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.verbs import Verbs

SIZES = (1 << 10, 1 << 20)
"""Bytes of each rank's part."""
_REPEAT = 5
_Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class Together:
    """seconds: by collective and bytes, the best of several calls, on the slowest rank; wrong: ranks with wrong
    results."""

    seconds: Mapping[str, Mapping[int, float]]
    wrong: Mapping[str, tuple[int, ...]]


def tried(group: Verbs) -> Together:
    """Runs every collective at every size. Collective; returns the same on all ranks."""
    seconds: dict[str, dict[int, float]] = {}
    wrong: dict[str, tuple[int, ...]] = {}
    for name, run in _COLLECTIVES.items():
        for size in SIZES:
            right, best = True, np.inf
            for _ in range(_REPEAT):
                group.barrier()
                begin = time.perf_counter()
                right &= run(group, size // 4)
                best = min(best, time.perf_counter() - begin)
            said = np.empty((group.size, 2))
            group.all_gather(np.array([right, best]), said)
            seconds.setdefault(name, {})[size] = float(said[:, 1].max())
            guilty = tuple(int(rank) for rank in np.flatnonzero(said[:, 0] == 0))
            if guilty:
                wrong[name] = guilty
    return Together(seconds, wrong)


def _part(rank: int, count: int) -> _Numbers:
    return np.arange(count, dtype=np.int32) + rank


def _all_reduce(group: Verbs, count: int) -> bool:
    data = _part(group.rank, count)
    group.all_reduce(data)
    return np.array_equal(data, _sum(group.size, np.arange(count, dtype=np.int32)))


def _all_gather(group: Verbs, count: int) -> bool:
    data = np.empty((group.size, count), np.int32)
    group.all_gather(_part(group.rank, count), data)
    return all(np.array_equal(row, _part(rank, count)) for rank, row in enumerate(data))


def _reduce_scatter(group: Verbs, count: int) -> bool:
    given, data = _part(group.rank, count * group.size), np.empty(count, np.int32)
    group.reduce_scatter(given, data)
    return np.array_equal(data, _sum(group.size, _part(count * group.rank, count)))


def _all_to_all(group: Verbs, count: int) -> bool:
    given = np.stack([_part(1000 * group.rank + other, count) for other in range(group.size)])
    data = np.empty_like(given)
    group.all_to_all(given, data)
    return all(np.array_equal(row, _part(1000 * rank + group.rank, count)) for rank, row in enumerate(data))


def _broadcast(group: Verbs, count: int) -> bool:
    data = _part(group.rank, count)
    group.broadcast(data, 0)
    return np.array_equal(data, _part(0, count))


def _sum(ranks: int, numbers: _Numbers) -> _Numbers:
    """The sum of arrays to which each rank has added its number."""
    return (numbers * ranks + ranks * (ranks - 1) // 2).astype(np.int32)


_COLLECTIVES: Mapping[str, Callable[[Verbs, int], bool]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
}

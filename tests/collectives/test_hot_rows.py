"""Sparse sums whose hot rows go another way than the rest: the same sums, and what is hot follows the demand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator
from syntony.collectives.buffers import UsageError
from syntony.collectives.hot_rows import HotRows, Rows, Values
from tests.collectives.test_in_network import RANKS, on_ranks, ways

__all__ = ["ways"]  # a fixture

TABLE, WIDTH = 200, 5


def brought(rank: int, step: int, first: int) -> tuple[Rows, Values]:
    """Rows by Zipf's law, from `first` on, some of them twice; a rank has none now and then."""
    rng = np.random.default_rng((rank, step))
    count = 0 if (rank + step) % 5 == 0 else int(rng.integers(1, 80))
    rows = (first + np.minimum(rng.zipf(1.5, count), TABLE) - 1) % TABLE
    return rows.astype(np.int64), rng.integers(-8, 9, (count, WIDTH)).astype(np.float32)  # sums are exact


def expected(step: int, first: int) -> tuple[list[int], list[list[float]]]:
    total: dict[int, Values] = {}
    for rank in range(RANKS):
        for row, values in zip(*brought(rank, step, first), strict=True):
            total[int(row)] = total.get(int(row), np.zeros(WIDTH, np.float32)) + values
    rows = sorted(total)
    return rows, [total[row].tolist() for row in rows]


@pytest.mark.parametrize("algorithm", ["in_network", "ring"])
def test_sums_are_those_of_all_rows_and_hot_rows_follow_the_demand(
    ways: list[str],
    tmp_path: Path,
    algorithm: str,
) -> None:
    def job(group: Communicator) -> object:
        sums = HotRows(group, TABLE, 16, every=6, algorithm=algorithm)
        hot = []
        for step in range(24):
            first = 0 if step < 8 else 100
            rows, values = sums.all_reduce(*brought(group.rank, step, first))
            assert (rows.tolist(), values.tolist()) == expected(step, first), step
            hot.append(sums.hot.tolist())
        return hot

    told = on_ranks(tmp_path, job, ways)
    assert told == [told[0]] * RANKS
    before, after = told[0][5], told[0][-1]  # type: ignore[index]
    assert told[0][4] == []  # type: ignore[index]
    assert {0, 1, 2} <= set(before)
    assert {100, 101, 102} <= set(after)
    assert len(after) == 16


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    def job(group: Communicator) -> object:
        sums = HotRows(group, 10, 2)
        for rows, values in (
            (np.array([10]), np.zeros((1, 2), np.float32)),
            (np.array([1, 2]), np.zeros((1, 2), np.float32)),
        ):
            with pytest.raises(UsageError):
                sums.all_reduce(rows, values)
        with pytest.raises(UsageError, match="of 10 rows 11 cannot be hot"):
            HotRows(group, 10, 11)
        return None

    assert on_ranks(tmp_path, job, [""]) == [None]

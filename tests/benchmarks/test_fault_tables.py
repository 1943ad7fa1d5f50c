"""The tables `kill`, `mismatch` and `soak` in small: what they must see is there; how long it took is not asked."""

from __future__ import annotations

import pytest

from syntony.benchmarks.runtime import kill, mismatch, soak
from syntony.benchmarks.runtime.measured.random_operations import WrongResultError, random_operation
from syntony.benchmarks.runtime.measured.returned import returned_by
from syntony.collectives.bootstrap.launch import Exchange, RankError


def test_a_kill_is_named_by_all_survivors_and_nothing_is_left() -> None:
    for row in kill._rows(1, 7):
        _, kills, named, *_, wrong = row.cells
        assert (kills, named, wrong) == (1, kill.RANKS - 1, 0), row.missed


def test_both_sides_of_every_disagreement_are_shown() -> None:
    for row in mismatch._rows(2, 1, 7):
        _, _, errors, shown, *_ = row.cells
        assert errors == shown == 2, row.missed


def test_a_soak_counts_what_it_did() -> None:
    small, mixed = soak._rows(50, 0.01, 7)
    assert small.cells[2] == 50
    assert int(str(mixed.cells[2])) >= 100


def _wrong(exchange: Exchange) -> None:
    import random

    import numpy as np

    from syntony import Communicator

    with Communicator.create(exchange, 60.0) as group:
        honest = group.all_reduce

        def spoilt(array: np.ndarray) -> None:
            honest(array)
            array[0] += 1

        group.all_reduce = spoilt  # type: ignore[method-assign, assignment]
        rng = random.Random(7)
        for _ in range(100):
            random_operation(group, rng)


def test_a_wrong_sum_does_not_pass() -> None:
    with pytest.raises(RankError, match=f"{WrongResultError.__name__}: all_reduce of"):
        returned_by(2, _wrong)

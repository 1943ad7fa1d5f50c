"""Sequences dealt by speed."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.overlap.step.shares import last, shares_by_speed
from tests.sampled import examples


@examples(40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 6))
def test_nobody_could_be_done_sooner(speeds: list[int], more: int) -> None:
    rows = len(speeds) + more

    def end(shares: tuple[int, ...]) -> Fraction:
        return max(Fraction(share, speed) for share, speed in zip(shares, speeds, strict=True))

    shares = shares_by_speed(rows, speeds)
    assert sum(shares) == rows
    others = product(range(1, rows + 1), repeat=len(speeds))
    assert end(shares) == min(end(other) for other in others if sum(other) == rows)
    slowest = last(shares, speeds)
    assert Fraction(shares[slowest], speeds[slowest]) == end(shares)


def test_too_few() -> None:
    with pytest.raises(UserError, match="3 sequences are too few for 2 ranks of 2 at least"):
        shares_by_speed(3, [1, 1], least=2)
    with pytest.raises(UserError, match="speeds are 1, 0; each must be above 0"):
        shares_by_speed(3, [1, 0])

"""What every run takes of a large number of cases. All of them are for sweeps (`make test-all`, or pytest -m sweep)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

SWEEPING = False
"""Whether this is a sweep; conftest.py says so before any test is read."""


def one_in(count: int, *axes: Sequence[Any]) -> list[Any]:
    """All cases of the product of `axes`, for parametrize. Those whose places on the axes add up to a multiple of
    `count` are for every run, so that each value of an axis meets every count-th value of another.

            x . . x . .
            . . x . . x     one_in(3, rows, columns)
            . x . . x .
    """
    cases = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        cases.append(pytest.param(*values, marks=() if sum(places) % count == 0 else pytest.mark.sweep))
    return cases


def examples(count: int, **others: Any) -> settings:
    """Hypothesis's settings for a test that has `count` examples in a sweep, and a third of them in every run."""
    return settings(max_examples=count if SWEEPING else max(5, count // 3), **others)

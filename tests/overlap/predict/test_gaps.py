"""Idle wires: what is found by intervals is what is found moment by moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.overlap.predict.gaps import idle_wires
from syntony.overlap.predict.simulation import Timeline
from syntony.overlap.step.op import COMPUTE

PERIOD = 20
Span = tuple[int, int]
spans = st.lists(
    st.tuples(st.integers(0, PERIOD), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=6
)


def timeline(computed: list[Span], moved: list[Span], elsewhere: list[Span] = ()) -> Timeline:  # type: ignore[assignment]
    """A steady step: spans of device 0's computing, of what it moves, and of what another device moves."""
    ops: list[Any] = [
        SimpleNamespace(device=device, lane=lane, key=(lane, device, number))
        for lane, device, some in ((COMPUTE, 0, computed), ("link", 0, moved), ("link", 1, elsewhere))
        for number, _ in enumerate(some)
    ]
    times = np.array([*computed, *moved, *elsewhere], float).reshape(-1, 2)
    plan = SimpleNamespace(graph=ops)
    return cast("Timeline", SimpleNamespace(plan=plan, start=times[:, 0], end=times[:, 1], seconds=float(PERIOD)))


@pytest.mark.parametrize(
    ("computed", "moved", "idle"),
    [
        ([(0, 10)], [], [10]),
        ([(0, 10)], [(2, 5)], [7]),
        ([(0, 10)], [(2, 5), (4, 6)], [6]),  # two lanes at once take the wires once
        ([(0, 4), (4, 10)], [(3, 6)], [3, 4]),
        ([(0, 10)], [(18, 23)], [7]),  # of the step before
        ([(15, 25)], [(0, 2)], [8]),  # of the step after
    ],
)
def test_by_hand(computed: list[Span], moved: list[Span], idle: list[int]) -> None:
    assert list(idle_wires(timeline(computed, moved), 0).values()) == idle


@given(spans, spans, spans)
def test_moment_by_moment(computed: list[Span], moved: list[Span], elsewhere: list[Span]) -> None:
    found = idle_wires(timeline(computed, moved, elsewhere), 0)
    assert len(found) == len(computed)
    for (begin, end), idle in zip(computed, found.values(), strict=True):
        free = [
            moment
            for moment in range(begin, end)
            if not any(first + turn <= moment < last + turn for first, last in moved for turn in (-PERIOD, 0, PERIOD))
        ]
        assert idle == len(free)

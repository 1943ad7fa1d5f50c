"""The table of many small sums. The lab itself needs root."""

from __future__ import annotations

from syntony.benchmarks.runtime.decode import _rows, typical
from syntony.benchmarks.runtime.measured.hosts_rank import GLOO, Job, Timed

JOBS = [Job("all_reduce", 64 << 10, 9, ("auto", "two_level", "ring", GLOO))]


def _turn(auto: float, two_level: float, ring: float) -> list[Timed]:
    names = ("two_level", "two_level", "ring", GLOO)
    return [Timed(name, seconds, 0, ()) for name, seconds in zip(names, (auto, two_level, ring, 9.0), strict=True)]


def test_a_time_is_the_median_of_all_turns_whoever_asked() -> None:
    found = [_turn(1.0, 2.0, 3.0), _turn(4.0, 1.5, 5.0), _turn(1.2, 1.6, 4.0)]
    (row,) = typical(found, 3)
    assert [timed.seconds for timed in row] == [1.55, 1.55, 4.0, 9.0]


def test_the_default_must_be_near_the_best() -> None:
    assert [row.missed for row in _rows(JOBS, [_turn(1.0, 1.0, 0.95)], 5.0)] == [""] * 4
    (auto, *others) = _rows(JOBS, [_turn(1.0, 1.0, 0.8)], 5.0)
    assert auto.missed == "1.25 times what the best takes"
    assert not any(row.missed for row in others)
    assert next(_rows(JOBS, [_turn(2.0, 2.0, 1.9)], 5.0)).missed == "less than 5 times gloo"

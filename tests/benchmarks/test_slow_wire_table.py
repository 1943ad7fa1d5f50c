"""The table of a wire that becomes slow: its parts, and what counts as missed."""

from __future__ import annotations

from typing import Any

import pytest

from syntony.benchmarks.sim_vs_lab.slow_wire import rows

RANKS = frozenset({2})
CALLS = [(10.0, 10.1, "ring"), (85.0, 85.3, "ring"), (120.0, 120.2, "hierarchical")]


def tuning(begin: float, ends: tuple[int, int], end: float = 115.0) -> dict[str, Any]:
    return {"begin": begin, "end": end, "wires": [{"ends": ends, "text": f"{ends[0]} to {ends[1]} is slow; it costs"}]}


def test_a_run_has_three_parts() -> None:
    found = {"calls": CALLS, "tunings": [tuning(100.0, (1, 2))]}
    full, slow, again = rows(found, 80.0, RANKS)
    assert full.cells == ("0", "10", 1, "100.0", "ring", "full rate")
    assert slow.cells == ("80", "85", 1, "300.0", "ring", "slow")
    assert again.cells == ("115", "120", 1, "200.0", "hierarchical", "tuned again")
    assert again.remark == "1 to 2 is slow"
    assert not any(row.missed for row in (full, slow, again))


@pytest.mark.parametrize(
    ("tunings", "calls", "missed"),
    [
        ([], CALLS, ["", "no wire was named"]),
        ([tuning(100.0, (0, 1))], CALLS, ["", "", "a wire was named that is not slow"]),
        (
            [tuning(50.0, (1, 2))],
            CALLS,
            ["", "no call fell into this part; run longer", "a wire was named that is not slow"],
        ),
        ([tuning(100.0, (1, 2))], [*CALLS[:2], (120.0, 120.5, "ring")], ["", "", "slower than before tuning"]),
        ([tuning(100.0, (1, 2))], CALLS[:2], ["", "", "no call fell into this part; run longer"]),
    ],
)
def test_what_is_missed(
    tunings: list[dict[str, Any]], calls: list[tuple[float, float, str]], missed: list[str]
) -> None:
    found = [row.missed for row in rows({"calls": calls, "tunings": tunings}, 80.0, RANKS)]
    assert found == missed

"""Deadlines count by the clock that is set."""

from __future__ import annotations

import time
from contextvars import copy_context
from pathlib import Path

import pytest

from syntony.base import deadline
from syntony.base.deadline import CLOCK, Deadline, wall


def test_a_deadline_passes_when_the_clock_that_is_set_has() -> None:
    now = [100.0]

    def counted() -> None:
        CLOCK.set(lambda: now[0])
        end = Deadline(2.0)
        assert end.left() == 2.0
        now[0] = 101.5
        assert (end.left(), end.passed()) == (0.5, False)
        now[0] = 103.0
        assert (end.left(), end.passed()) == (0.0, True)

    copy_context().run(counted)
    assert not Deadline(60.0).passed()


def test_solvers_get_longer_where_processors_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = tmp_path / "schedstat"
    monkeypatch.setattr(deadline, "WAITS", waits)

    def counted() -> list[float]:
        CLOCK.set(time.process_time)
        limits = [wall(2.0)]  # a kernel that does not tell
        for text in ("4000 2000 7\n", "0 0 0\n"):
            waits.write_text(text)
            limits.append(wall(2.0))
        return limits

    assert copy_context().run(counted) == [2.0, 3.0, 2.0]
    waits.write_text("4000 2000 7\n")
    assert wall(2.0) == 2.0  # seconds of wall clock are what was meant

"""Deadlines count by the clock that is set."""

from __future__ import annotations

from contextvars import copy_context

from syntony.base.deadline import CLOCK, Deadline


def test_a_deadline_passes_when_the_clock_that_is_set_has() -> None:
    now = [100.0]

    def counted() -> None:
        CLOCK.set(lambda: now[0])
        deadline = Deadline(2.0)
        assert deadline.left() == 2.0
        now[0] = 101.5
        assert (deadline.left(), deadline.passed()) == (0.5, False)
        now[0] = 103.0
        assert (deadline.left(), deadline.passed()) == (0.0, True)

    copy_context().run(counted)
    assert not Deadline(60.0).passed()

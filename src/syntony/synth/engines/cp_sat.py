"""CP-SAT, for so many seconds of the engine's clock; whoever is paused or interrupted need not wait for its end.

    this thread   [looks at the clock][..][..][stops it]      a signal of the nursery is heard here at once
    another one   [CP-SAT, with threads of its own      ]     a paused process pauses it, too (nursery.py)

CP-SAT's own limit is of wall clock. It would neither count what its threads take, nor leave out a pause.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING

from syntony.base.deadline import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

TICK = 0.02
"""Seconds of wall clock between two looks at the clock."""


def solve(solver: cp_model.CpSolver, model: cp_model.CpModel, seconds: float) -> cp_model.CpSolverStatus:
    """The status after at most so many seconds of CLOCK; what the solver found by then, it holds."""
    deadline = Deadline(seconds)
    with ThreadPoolExecutor(1) as thread:
        status = thread.submit(solver.solve, model)
        try:
            while not deadline.passed():
                try:
                    return status.result(TICK)
                except NotYet:
                    continue
        finally:  # also where this is interrupted
            while not status.done():
                solver.stop_search()  # in vain before it has begun
                try:
                    status.exception(TICK)
                except NotYet:
                    continue
        return status.result()

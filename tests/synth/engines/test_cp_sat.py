"""CP-SAT ends by the clock that is set, and whoever waits for it hears signals."""

from __future__ import annotations

import signal
from contextvars import copy_context
from itertools import count

import pytest
from ortools.sat.python import cp_model

from syntony.base.deadline import CLOCK
from syntony.synth.engines import cp_sat


def pigeons(holes: int) -> tuple[cp_model.CpModel, cp_model.CpSolver]:
    """One more than there are holes: without cuts and symmetry, a proof that they do not fit takes forever."""
    model = cp_model.CpModel()
    sits = [[model.new_bool_var("") for _ in range(holes)] for _ in range(holes + 1)]
    for one in sits:
        model.add_bool_or(one)
    for hole in range(holes):
        for first in range(holes + 1):
            for other in range(first):
                model.add_bool_or(~sits[first][hole], ~sits[other][hole])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False
    solver.parameters.symmetry_level = 0
    solver.parameters.linearization_level = 0
    return model, solver


def test_it_answers() -> None:
    model, solver = pigeons(3)
    assert cp_sat.solve(solver, model, 60.0) == cp_model.INFEASIBLE


def test_it_ends_by_the_clock_that_is_set() -> None:
    def counted() -> cp_model.CpSolverStatus:
        looks = count()
        CLOCK.set(lambda: float(next(looks)))
        model, solver = pigeons(40)
        return cp_sat.solve(solver, model, 5.0)

    assert copy_context().run(counted) == cp_model.UNKNOWN


def test_a_signal_is_heard_while_it_solves() -> None:
    class HeardError(Exception):
        pass

    def heard(*_: object) -> None:
        raise HeardError

    model, solver = pigeons(40)
    before = signal.signal(signal.SIGALRM, heard)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(HeardError):
            cp_sat.solve(solver, model, 3600.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

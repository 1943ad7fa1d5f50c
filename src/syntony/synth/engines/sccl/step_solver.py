"""Decides one instance of the k-synchronous problem: which solvers run, in which order, and what is proven.

    chunks that one rank wants      whole flows                                       (step_flow.py)
    others                          invariant schedules, group after group of a chain (step_symmetry.py, step_cp_sat.py)
                                      with a limited effort each, and after the first one
                                    the linear bound, which may show that there is none (step_bound.py)
                                      and at last all schedules, for the time that is left

Only the last two can prove that there is no schedule. The independent solver z3 does all of it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from syntony.base.wording import counted
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.sccl import step_cp_sat, step_flow, step_z3
from syntony.synth.engines.sccl.step_bound import least_rounds
from syntony.synth.engines.sccl.step_problem import Answer, Instance, Send
from syntony.synth.engines.sccl.step_symmetry import chain
from syntony.synth.model.routes import Routes

SYMMETRIC_EFFORT = 3.0
"""CP-SAT's deterministic seconds for each group of the chain; somewhat less than a second each."""
BOUND_SHARE = 0.3
"""The linear bound may take this share of the remaining time."""
Z3_SYMMETRIC_SHARE = 0.3
"""The share of the remaining time in which z3 may look for invariant schedules."""


@dataclass(frozen=True)
class Question:
    """An instance, in the words of its collective, over these routes; a bound on its rounds, and who is to solve it.

    linear  the linear bound on its rounds, if that is known already
    """

    instance: Instance
    routes: Routes
    words: str
    floor: Fraction
    solver: str = "CP-SAT"
    linear: Fraction | None = None


def decide(question: Question, budget: Budget) -> list[Send]:
    """Sends that solve it. Raises EngineError: that there are none is proven; OutOfTimeError: it is not known."""
    instance, words = question.instance, question.words
    where = "" if question.routes.complete else " over shortest routes"
    linear = question.linear
    least = max(question.floor, linear or question.floor)
    answer: Answer = None
    if question.solver == "z3":
        answer = _by_z3(instance, budget)
    elif step_flow.applies(instance):
        answer = step_flow.solve(instance, budget.left())
    else:
        for place, group in enumerate(chain(instance.network, instance.routes)):
            if linear is None and (place == 1 or not group):
                seconds = BOUND_SHARE * budget.left()
                linear = least_rounds(instance.network, instance.routes, instance.steps, seconds)
                least = max(least, linear)
                if instance.rounds < least:
                    raise EngineError(
                        f"no schedule of {words}{where}: {counted(instance.steps, 'step')} take at least "
                        f"{counted(ceil(least), 'round')}, proven by linear programming"
                    )
            answer = step_cp_sat.solve(instance, budget.left(), group, SYMMETRIC_EFFORT if group else 0.0)
            if isinstance(answer, list):
                break
    if answer is None:
        known = f"proven so far: {counted(instance.steps, 'step')} take at least {counted(ceil(least), 'round')}; "
        raise OutOfTimeError(
            f"{question.solver} did not decide {words} within {budget.timeout:g} s; {known}"
            "allow more with --timeout, or ask for fewer chunks"
        )
    if answer is False:
        raise EngineError(f"no schedule of {words}{where}: {question.solver} proved it infeasible")
    return answer


def _by_z3(instance: Instance, budget: Budget) -> Answer:
    group, *_ = chain(instance.network, instance.routes)
    if group:
        found = step_z3.solve(instance, Z3_SYMMETRIC_SHARE * budget.left(), group)
        if isinstance(found, list):
            return found
    return step_z3.solve(instance, budget.left())

"""What engine `auto` finds with a budget of processor time, which repeats on a machine that others use, too."""

from __future__ import annotations

from syntony.base.deadline import CLOCK
from syntony.benchmarks.synthesis.table import require_proven
from syntony.synth.engines import auto
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.workers import Found, Workers
from syntony.synth.model.collective import Collective
from syntony.topologies.topology import Topology


def by_auto(topology: Topology, collective: Collective, size: int, budget: float) -> tuple[Found, float]:
    """The fastest schedule of all that are found, and the seconds that passed, as engines/workers.py counts them.

    The checker has proven it. Raises OutOfTimeError, and WrongScheduleError.
    """
    with Workers(auto.most_workers(), processor=True) as workers:
        before, begin = CLOCK.set(workers.now), workers.now()
        try:
            found = auto.candidates(topology, collective, size, Budget(budget), workers=workers)
            best, took = min(found, key=lambda one: one.seconds), workers.now() - begin
        finally:
            CLOCK.reset(before)
    require_proven(best.schedule)
    return best, took

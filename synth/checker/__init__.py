"""The checker: proves Schedules and Programs, and trusts nobody (DESIGN, promise 1)."""

from synth.checker.program import check_program, least_fifo_depth, prove
from synth.checker.schedule import check_schedule
from synth.checker.verdict import CHECKER_VERSION, Verdict

__all__ = ["CHECKER_VERSION", "Verdict", "check_program", "check_schedule", "least_fifo_depth", "prove"]

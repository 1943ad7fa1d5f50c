"""The checker: proves Schedules and Programs. It shares no code with engines, lowering and builders."""

from syntony.synth.checker.programs.check import check_program, least_fifo_depth, prove
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.checker.verdict import Verdict

__all__ = ["Verdict", "check_program", "check_schedule", "least_fifo_depth", "prove"]

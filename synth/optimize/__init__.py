"""Passes over Programs. Each is one file, and keeps what the Program means: values, claims, where results lie.

    Program ──▶ Tape ──▶ copies ──▶ coalescing ──▶ fusion ──▶ scratch ──▶ Program

Whoever asks for a better Program has it proven again before it runs (`synth.checker`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from synth.checker.program import least_fifo_depth
from synth.optimize.coalescing import coalesced
from synth.optimize.copies import without_copies
from synth.optimize.fusion import fused
from synth.optimize.scratch import trimmed
from synth.optimize.tape import Tape
from synth.program import Program
from synth.target import CPU, Target

__all__ = ["optimize"]


def optimize(program: Program, target: Target = CPU) -> Program:
    """A Program that does the same with less: fewer copies, messages, instructions, slots. For a proven Program.

    A pass after which the Program would claim less, or need deeper FIFOs than the Target has, is left out. Programs
    that Tape does not take (one-sided, signals, in-place only) come back as they are.
    """
    if not Tape.takes(program):
        return program
    tape = Tape.of(program)
    passes: tuple[Callable[[Tape], Tape], ...] = (
        lambda tape: without_copies(tape, program),
        lambda tape: coalesced(tape, target.message_slots),
        fused,
    )
    best, depth = program, max(target.fifo_depth, program.fifo_depth)
    for rewrite in passes:
        changed = trimmed(rewrite(tape))
        if changed == tape:
            continue
        candidate = _at_least_depth(changed.program())
        if candidate is not None and candidate.fifo_depth <= depth and _claims_as_much(candidate, program):
            best, tape = candidate, changed.sorted()
    return best


def _at_least_depth(program: Program) -> Program | None:
    least = 1 if program.fifo_depth == 1 else least_fifo_depth(program)
    return None if least is None else replace(program, fifo_depth=least)


def _claims_as_much(found: Program, wanted: Program) -> bool:
    return found.in_place >= wanted.in_place and found.rounds_per_hop <= wanted.rounds_per_hop

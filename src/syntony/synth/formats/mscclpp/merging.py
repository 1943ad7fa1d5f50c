"""Joins lanes if the lanes of a rank wait for each other in more ways than MSCCL++ has semaphores.

Adjacent lanes become one, whose instructions run in the order of the tape. That is a possible order of the whole
Program, so lanes that follow it never wait in a cycle as long as no sender waits for memory, and in a plan none does.

    lane 0  a . c .        3 lanes, 2 semaphores        lane 0  a b c d
    lane 1  . b . d                                     lane 1  e f
    lane 2  e . f .
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.program import Program


def with_fewer_lanes(program: Program) -> Iterator[Program]:
    """The Program, then with lanes joined: half as many each time, down to one per rank. For a proven Program."""
    yield program
    if not Tape.takes(program):
        return
    tape = Tape.of(program)
    most = max((step.lane for step in tape.steps), default=0) + 1
    joined = 2
    while joined < 2 * most:
        lanes = [replace(step, lane=step.lane // joined) for step in tape.steps]
        yield tape.with_steps(lanes).program()
        joined *= 2

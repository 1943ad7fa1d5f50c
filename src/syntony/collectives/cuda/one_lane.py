"""One lane per rank: what its lanes do side by side, one after another.

    rank 0   lane 0  send to 1 │ lane 1  recv from 1 │ lane 2  reduce        lane 0  send to 1, recv from 1, reduce

A thread block that runs straight-line code cannot leave a lane that waits and take up another. So a Program with more
lanes than blocks fit on the GPU cannot run as it is; in the order of one execution that ends (a Tape) it can, in one
lane per rank, and no wait for another lane of the rank is left. Side by side are then the stripes (lane.hpp).
"""

from __future__ import annotations

from dataclasses import replace

from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.instructions import ProgramError
from syntony.synth.model.program import Program


def one_lane(program: Program) -> Program:
    """The same moves in one lane per rank, slice after slice; ProgramError when the Program has no tape.

    It may need deeper FIFOs, and says so. The Program must have passed the checker.
    """
    if not Tape.takes(program):
        raise ProgramError(
            f"program '{program.name}' cannot be put into one lane per rank: it uses signals, one-sided instructions "
            "or its inputs as outputs"
        )
    tape = Tape.of(program)
    found = tape.with_steps([replace(step, lane=0) for step in tape.steps]).least_program()
    if found is None:  # the tape itself is an execution that ends
        raise ProgramError(f"program '{program.name}' cannot be put into one lane per rank")
    return replace(found, in_place=program.in_place, rounds_per_hop=program.rounds_per_hop)

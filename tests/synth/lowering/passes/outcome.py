"""What a Program leaves in its outputs: sums as trees, so that equal outcomes mean equal bits."""

from __future__ import annotations

import random

from syntony.synth.checker import check_program
from syntony.synth.checker.programs.connections import match
from syntony.synth.checker.programs.execution import execute
from syntony.synth.checker.programs.memory import Sums, run
from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.model.instructions import Space
from syntony.synth.model.program import Program
from tests.synth import random_executor


def same_outcome(before: Program, after: Program) -> None:
    """Asserts that `after` is proven, runs right in random orders, claims as much and leaves the same bits."""
    assert check_program(after).fault is None
    assert (before.collective, before.ranks, before.root) == (after.collective, after.ranks, after.root)
    assert after.out_of_place >= before.out_of_place
    assert after.in_place >= before.in_place
    for seed in range(2):
        for in_place in [mode for mode in (False, True) if (after.in_place if mode else after.out_of_place)]:
            random_executor.run(after, in_place, random.Random(seed))
    sums = Sums(before.ranks)
    assert _outputs(before, sums) == _outputs(after, sums)


def _outputs(program: Program, sums: Sums) -> dict[tuple[int, int], int]:
    code = Resolved(program)
    match(code)
    found = run(code, execute(code, program.fifo_depth), sums, in_place=not program.out_of_place)
    return {
        (rank, chunk): found.final[found.place[row]]
        for row, (rank, space, chunk) in enumerate(program.slots.tolist())
        if space == Space.output
    }

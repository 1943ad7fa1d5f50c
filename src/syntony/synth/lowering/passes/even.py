"""Even chunks, for formats in which all chunks have one size.

A chunk of weight w becomes w adjacent chunks that move together, so no message is added:

    weights   2   1   3        send slot 0 (weight 2)          recv into slot 2 (weight 3)
    even      01  2   345      send slots 0 and 1              recv into slots 3, 4 and 5
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import accumulate
from math import gcd

from syntony.synth.lowering.passes.tape import Slot, Tape
from syntony.synth.model.program import Program

_MOST_CHUNKS = 1 << 12


def even(program: Program) -> Program:
    """The Program with chunks of equal weight, if it has a tape and 4,096 chunks are enough; otherwise unchanged.

    For a proven Program; the result needs no deeper FIFOs, because its messages are the same.
    """
    weights: list[int] = program.chunks[:, 1].tolist()
    unit = reduce(gcd, weights)
    if len(set(weights)) == 1 or sum(weights) // unit > _MOST_CHUNKS or not Tape.takes(program):
        return program
    parts = [weight // unit for weight in weights]
    tape = Tape.of(program)
    first = _first_slots(program, parts)

    def moved(rank: int, slot: Slot) -> Slot:
        return slot[0], first[rank, slot[0]][slot[1]]

    steps = []
    for step in tape.steps:
        anchor = step.dst or step.src
        assert anchor is not None
        starts = first[step.rank, anchor[0]]
        steps.append(
            replace(
                step,
                dst=step.dst and moved(step.rank, step.dst),
                src=step.src and moved(step.rank, step.src),
                operands=tuple(moved(step.rank, operand) for operand in step.operands),
                count=starts[anchor[1] + step.count] - starts[anchor[1]],
            )
        )
    pieces = [range(end - part, end) for end, part in zip(accumulate(parts), parts, strict=True)]
    finer = replace(
        tape,
        chunks=tuple((block, 1) for (block, _), part in zip(tape.chunks, parts, strict=True) for _ in range(part)),
        scratch=tuple(tuple(piece for chunk in chunks for piece in pieces[chunk]) for chunks in tape.scratch),
        steps=tuple(steps),
    )
    return finer.program().replace(fifo_depth=program.fifo_depth)


def _first_slots(program: Program, parts: list[int]) -> dict[tuple[int, int], list[int]]:
    """(rank, space) -> where each of its slots begins, counted in even chunks, and the end of the last."""
    first: dict[tuple[int, int], list[int]] = {}
    for rank, space, chunk in program.slots.tolist():
        starts = first.setdefault((rank, space), [0])
        starts.append(starts[-1] + parts[chunk])
    return first

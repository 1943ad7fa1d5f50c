"""Turns a reduction found for a placement (synth/placement/reductions.py) into a Program of one group.

    a group of 2 x 2        reduce_scatter[1]   0 ──▶ 1, 1 ──▶ 0   2 ──▶ 3, 3 ──▶ 2     sums of half of the chunks each
                            all_reduce[0]       0 ◀─▶ 2            1 ◀─▶ 3
                            all_gather[1]       0 ──▶ 1, 1 ──▶ 0   2 ──▶ 3, 3 ──▶ 2

Each step moves data as in its simulation: round a ring of its ranks, or along a chain of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from syntony.base.command import UserError
from syntony.synth.dsl.decorator import Algorithm
from syntony.synth.dsl.recording import Chunk, Recording
from syntony.synth.model.program import Program
from syntony.synth.model.target import CPU
from syntony.synth.placement.reductions import Step

Held = dict[int, Chunk]
"""By chunk: the partial sum that a rank holds."""


def as_program(steps: Sequence[Step], shape: tuple[int, ...]) -> Program:
    """The all_reduce of a group of that shape, ranks in order; proven. Raises UserError for a group of one rank."""
    ranks = math.prod(shape)
    if ranks == 1:
        raise UserError("each rank is a group of its own: there is nothing to sum")
    members = np.arange(ranks).reshape(shape)

    def reduction(a: Recording) -> None:
        held = [{chunk: a.input(rank, chunk=chunk) for chunk in range(ranks)} for rank in range(ranks)]
        for step in steps:
            for group in step.groups(members).tolist():
                _move(step.collective, group, [held[rank] for rank in group])

    return Algorithm(reduction, "all_reduce", ranks, ranks, 0, 1, CPU, False, False).program()


def _move(collective: str, ranks: Sequence[int], held: Sequence[Held]) -> None:
    """Runs one step in one group; `held`, by its ranks, is afterwards as in `reductions.applied`."""
    size = len(ranks)
    if collective == "broadcast":
        homes = dict.fromkeys(held[0], 0)
    elif collective == "reduce":
        homes = dict.fromkeys(held[0], size - 1)
        ranks, held = ranks[::-1], held[::-1]  # towards the first
    elif collective == "all_gather":
        homes = {chunk: place for place, mine in enumerate(held) for chunk in mine}
    else:
        homes = {chunk: index * size // len(held[0]) for index, chunk in enumerate(sorted(held[0]))}
    for chunk, home in homes.items():
        ring = [(home + hop) % size for hop in range(size)]
        if collective in ("all_reduce", "reduce_scatter", "reduce"):
            total = held[ring[1 % size]][chunk]
            for place in [*ring[2:], home]:
                total = held[place][chunk].add(total)
            held[home][chunk] = total
        if collective in ("reduce_scatter", "reduce"):
            for place in ring[1:]:
                del held[place][chunk]
            continue
        sent = held[home][chunk]
        for place in ring[1:]:
            sent = held[place][chunk] = sent.copy(to=ranks[place])

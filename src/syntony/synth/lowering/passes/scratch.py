"""Removes unused scratch slots and renumbers the others."""

from __future__ import annotations

from dataclasses import replace

from syntony.synth.lowering.passes.tape import Slot, Tape
from syntony.synth.model.instructions import Space


def trimmed(tape: Tape) -> Tape:
    """The tape with only the scratch slots that it uses, in their old order."""
    used: list[set[int]] = [set() for _ in range(tape.ranks)]
    for step in tape.steps:
        used[step.rank].update(index for space, index in (*step.read(), *step.written()) if space == Space.scratch)
    if all(len(indices) == len(chunks) for indices, chunks in zip(used, tape.scratch, strict=True)):
        return tape
    place = [{index: at for at, index in enumerate(sorted(indices))} for indices in used]

    def moved(rank: int, slot: Slot | None) -> Slot | None:
        return slot if slot is None or slot[0] != Space.scratch else (slot[0], place[rank][slot[1]])

    steps = [
        replace(
            step,
            dst=moved(step.rank, step.dst),
            src=moved(step.rank, step.src),
            operands=tuple(moved(step.rank, operand) or operand for operand in step.operands),
        )
        for step in tape.steps
    ]
    scratch = tuple(
        tuple(chunks[index] for index in sorted(indices)) for indices, chunks in zip(used, tape.scratch, strict=True)
    )
    return replace(tape, steps=tuple(steps), scratch=scratch)

"""Removes unneeded copies: a read of a copy becomes a read of the original, and copies that are never read go.

    copy scratch[0] = input[2]                          send input[2]
    send scratch[0]                         ──▶

A message whose data nobody reads is removed too, at both ends. Outputs count as read at the end.
"""

from __future__ import annotations

from dataclasses import replace

from syntony.synth.lowering.passes.tape import Slot, Step, Tape, slots_from
from syntony.synth.model.instructions import Opcode, Space
from syntony.synth.model.program import Program

Held = tuple[int, Slot]
"""A slot of a rank."""


def without_copies(tape: Tape, program: Program) -> Tape:
    """Both passes, one after the other. `program` tells which input and output slots belong to one chunk."""
    return _without_unread(_reading_originals(tape, _aliases(program)))


def _aliases(program: Program) -> dict[Held, Held]:
    """Output slot -> the input slot that has the same memory in place."""
    inputs: dict[tuple[int, int], Held] = {}
    found: dict[Held, Held] = {}
    for row, (rank, space, chunk) in enumerate(program.slots.tolist()):
        held = (rank, (space, row - int(program.space_start[rank, space])))
        if space == Space.input:
            inputs[rank, chunk] = held
        elif space == Space.output and (rank, chunk) in inputs:
            found[held] = inputs[rank, chunk]
    return found


def _reading_originals(tape: Tape, alias: dict[Held, Held]) -> Tape:
    version: dict[Held, int] = {}
    original: dict[Held, tuple[Slot, int]] = {}  # a copy -> what it is a copy of, and which version of that

    def behind(rank: int, first: Slot | None, count: int) -> Slot | None:
        """Where the same data was first: `count` consecutive slots, unchanged since."""
        if first is None:
            return None
        found = []
        for slot in slots_from(first, count):
            origin, seen = original.get((rank, slot), (None, 0))
            if origin is None or version.get((rank, origin), 0) != seen:
                return first
            found.append(origin)
        return found[0] if found == slots_from(found[0], count) else first

    steps: list[Step] = []
    for step in tape.steps:
        rank = step.rank
        step = replace(
            step,
            src=behind(rank, step.src, step.count),
            operands=tuple(behind(rank, operand, step.count) or operand for operand in step.operands),
        )
        if len({step.src, *step.operands}) <= len(step.operands):  # it would read one slot as two operands
            step = replace(step, src=tape.steps[len(steps)].src, operands=tape.steps[len(steps)].operands)
        steps.append(step)
        sources = list(step.read())
        for k, slot in enumerate(step.written()):
            held = (rank, slot)
            version[held] = version.get(held, 0) + 1
            original.pop(held, None)
            copied = step.opcode == Opcode.copy
            if held in alias and not (copied and alias[held] == (rank, sources[k])):
                version[alias[held]] = version.get(alias[held], 0) + 1
            if copied:
                original[held] = (sources[k], version.get((rank, sources[k]), 0))
    return tape.with_steps(steps)


def _without_unread(tape: Tape) -> Tape:
    sender = tape.senders()
    kept: list[Step | None] = list(tape.steps)
    unheard: set[int] = set()
    read: set[Held] = set()
    for position in reversed(range(len(kept))):
        step = tape.steps[position]
        held = [(step.rank, slot) for slot in step.written()]
        needed = any(slot in read or slot[1][0] == Space.output for slot in held)
        if step.sends:
            needed = position not in unheard
        elif step.receives and not needed and tape.steps[sender[position]].opcode == Opcode.send:
            unheard.add(sender[position])
        elif step.receives:
            needed = True
        if not needed:
            kept[position] = None
            continue
        read.difference_update(held)
        read.update((step.rank, slot) for slot in step.read())
    return tape.with_steps(kept)

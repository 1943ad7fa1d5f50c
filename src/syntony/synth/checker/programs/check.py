"""The checker of Programs: relies only on the tables, shares no code with builders, engines or lowering.

It proves, in this order (the verdict is the first fault):

    layout       input and output slots are the collective's
    connections  one lane feeds and one lane drains each; messages match in number, kind, slots and chunks
    execution    it terminates at the FIFO depth (no deadlock), whatever the timing
    memory       for each memory mode that the Program claims: no race between lanes, no read before a write, the user's
                 input unchanged, each contribution summed exactly once
    outputs      every output slot holds the whole result; all copies of a sum were added in the same order, so they are
                 bitwise equal on all ranks; a sum of sums is rounded again, which `rounds_per_hop` must allow
    modes        if both memory modes are claimed, each rank may choose its own: every value is the same in both
"""

from __future__ import annotations

import numpy as np

from syntony.synth.checker.contract import Contract
from syntony.synth.checker.programs.connections import match
from syntony.synth.checker.programs.execution import deadlock_free, execute
from syntony.synth.checker.programs.memory import Contents, Sums, check_outputs, run
from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.checker.verdict import FaultError, Verdict
from syntony.synth.model.program import Program


def check_program(program: Program, fifo_depth: int | None = None) -> Verdict:
    """Proves the Program at `fifo_depth`, or at the depth that it claims; the Verdict names the first fault."""
    depth = program.fifo_depth if fifo_depth is None else fifo_depth
    if depth < 1:
        raise ValueError(f"a FIFO holds at least 1 message, not {depth}")
    try:
        _prove(program, depth)
    except FaultError as fault:
        return fault.verdict
    return Verdict(valid=True)


def prove(program: Program) -> Verdict:
    """Proves all claims of the Program: what every Program must pass before it runs."""
    return check_program(program)


def _prove(program: Program, depth: int) -> None:
    contract = Contract(program.collective, program.ranks, program.root)
    _check_layout(program, contract)
    code = Resolved(program)
    match(code)
    execution = execute(code, depth)
    sums = Sums(program.ranks)
    seen: list[Contents] = []
    for in_place in (False, True):
        if program.in_place if in_place else program.out_of_place:
            contents = run(code, execution, sums, in_place)
            check_outputs(code, contents, sums, contract, in_place)
            seen.append(contents)
    if len(seen) == 2:
        for row, values in enumerate(seen[0].produced):
            if values != seen[1].produced[row]:
                raise code.fault(
                    row,
                    f"gives {sums.text(values[0])} out of place but {sums.text(seen[1].produced[row][0])} in place; "
                    "ranks that choose differently would disagree",
                )


def _check_layout(program: Program, contract: Contract) -> None:
    blocks = int(program.chunks[-1, 0]) + 1
    if blocks != contract.blocks:
        raise FaultError(
            Verdict(False, f"{program.collective} on {program.ranks} ranks has {contract.blocks} blocks, not {blocks}")
        )
    chunk_start = np.searchsorted(program.chunks[:, 0], np.arange(blocks + 1))
    start = program.space_start
    for rank in range(program.ranks):
        for space, held in ((0, contract.input(rank)), (1, contract.output(rank))):
            wanted = [chunk for block in held for chunk in range(chunk_start[block], chunk_start[block + 1])]
            found = program.slots[start[rank, space] : start[rank, space + 1 if space == 0 else 2], 2].tolist()
            if found != wanted:
                raise FaultError(_layout_verdict(rank, ("input", "output")[space], wanted, found))


def _layout_verdict(rank: int, space: str, wanted: list[int], found: list[int]) -> Verdict:
    at = next((i for i, (w, f) in enumerate(zip(wanted, found, strict=False)) if w != f), min(len(wanted), len(found)))
    if at == len(wanted):
        told, chunk = f"has {len(found)} slots; the collective gives it {len(wanted)}", found[at]
    elif at == len(found):
        told, chunk = f"has {len(found)} slots; the collective gives it {len(wanted)}", wanted[at]
    else:
        told, chunk = f"slot {at} is chunk {found[at]}; it must be chunk {wanted[at]}", wanted[at]
    return Verdict(False, f"rank {rank}: {space} {told}", agent=rank, chunk=chunk)


def least_fifo_depth(program: Program) -> int | None:
    """The least FIFO depth at which the Program terminates; None if it always deadlocks or its messages mismatch."""
    code = Resolved(program)
    try:
        match(code)
    except FaultError:
        return None
    # No FIFO ever holds more than is sent through it altogether, so that depth is as good as infinite.
    limit = int(np.bincount(code.out[code.out >= 0]).max(initial=1))
    if not deadlock_free(code, limit):
        return None
    low, high = 1, limit
    while low < high:
        middle = (low + high) // 2
        if deadlock_free(code, middle):
            high = middle
        else:
            low = middle + 1
    return low

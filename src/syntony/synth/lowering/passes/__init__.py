"""Passes over Programs. Each is one file and preserves the Program's meaning: values, claims, locations of results.

    Program ──▶ Tape ──▶ copies ──▶ (coalescing) ──▶ (fusion) ──▶ scratch ──▶ Program

Coalescing is optional: fewer messages mean less latency, but chunks that travel together no longer overlap (simulated,
forest's all_reduce of 64 MiB on a ring of 4 then takes half as long again). Fusion is optional too: it saves slots,
lanes and half of the instructions, but a lane that must receive and send at once overlaps less (simulated, the DSL's
ring on 8 ranks with 64 MiB takes 0.68 s instead of 0.12). Lowered Schedules are left as they are.

Callers must have the optimized Program proven again before it runs (`syntony.synth.checker`).
"""

from __future__ import annotations

from collections.abc import Callable

from syntony.synth.lowering.passes.coalescing import coalesced
from syntony.synth.lowering.passes.copies import without_copies
from syntony.synth.lowering.passes.fusion import fused
from syntony.synth.lowering.passes.scratch import trimmed
from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.program import Program
from syntony.synth.model.target import CPU, Target

__all__ = ["optimize"]


def optimize(program: Program, target: Target = CPU, coalesce: bool = False, fuse: bool = False) -> Program:
    """An equivalent Program with fewer copies, instructions and slots; with `coalesce`, fewer messages; with `fuse`,
    fewer lanes.

    For a proven Program. A pass is skipped if its result would claim less or need deeper FIFOs than the Target has.
    Programs that Tape does not support (one-sided, signals, in place only) are returned unchanged.
    """
    if not Tape.takes(program):
        return program
    tape = Tape.of(program)
    passes: tuple[Callable[[Tape], Tape], ...] = (
        lambda tape: without_copies(tape, program),
        *((lambda tape: coalesced(tape, target.message_slots),) if coalesce else ()),
        *((fused,) if fuse else ()),
    )
    best, depth = program, max(target.fifo_depth, program.fifo_depth)
    for rewrite in passes:
        changed = trimmed(rewrite(tape))
        if changed == tape:
            continue
        candidate = changed.least_program()
        if candidate is not None and candidate.fifo_depth <= depth and _claims_as_much(candidate, program):
            best, tape = candidate, changed.sorted()
    return best


def _claims_as_much(found: Program, wanted: Program) -> bool:
    return found.in_place >= wanted.in_place and found.rounds_per_hop <= wanted.rounds_per_hop

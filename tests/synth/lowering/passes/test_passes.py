"""Passes over Programs: every one keeps the outcome, and does what it is for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import syntony
from syntony import _core
from syntony.synth.checker import check_program
from syntony.synth.dsl import Recording, algorithm
from syntony.synth.formats.loading import load
from syntony.synth.formats.msccl.xml_export import msccl_xml_text
from syntony.synth.formats.msccl.xml_file import read_msccl_xml
from syntony.synth.lowering.lower import lower
from syntony.synth.lowering.passes import optimize
from syntony.synth.lowering.passes.coalescing import coalesced
from syntony.synth.lowering.passes.copies import without_copies
from syntony.synth.lowering.passes.even import even
from syntony.synth.lowering.passes.fusion import fused
from syntony.synth.lowering.passes.lanes import within_lanes
from syntony.synth.lowering.passes.scratch import trimmed
from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import Opcode, Space
from syntony.synth.model.program import Program
from syntony.synth.model.target import CONVERSION, CPU, MSCCL, TargetError, fit
from tests.sampled import examples
from tests.synth.lowering.passes.outcome import same_outcome
from tests.synth.programs import one_sided_gather, ring_all_reduce
from tests.synth.schedules import SCHEDULES

FOREIGN = Path(__file__).parents[4].parent / "shared" / "foreign" / "msccl-xml"
BUILT = [(one.name, kind) for one in _core.algorithms() for kind in one.collectives]
PASSES = {
    "copies": lambda tape, program: without_copies(tape, program),
    "coalescing": lambda tape, program: coalesced(tape, None),
    "fusion": lambda tape, program: fused(tape),
    "scratch": lambda tape, program: trimmed(tape),
    "order": lambda tape, program: tape.sorted(),
}


def opcodes(program: Program) -> Counter[str]:
    return Counter(Opcode(opcode).name for opcode in program.field("opcode").tolist())


def scratch_slots(program: Program) -> int:
    return int((program.slots[:, 1] == Space.scratch).sum())


@pytest.mark.parametrize(("name", "kind"), BUILT)
def test_built_programs_keep_their_outcome(name: str, kind: str) -> None:
    for ranks in (1, 2, 5):
        program = _core.build(name, kind, ranks, 0, None)
        better = optimize(program, fuse=True)
        same_outcome(program, better)
        assert len(better.instructions) <= len(program.instructions)
        assert scratch_slots(better) <= scratch_slots(program)
        assert better.fifo_depth <= CPU.fifo_depth


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_keeps_the_outcome(name: str) -> None:
    for schedule in SCHEDULES.values():
        program = lower(schedule(), CPU)
        same_outcome(program, PASSES[name](Tape.of(program), program).program())


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.xml")), ids=lambda path: path.stem)
def test_foreign_programs_keep_their_outcome(path: Path) -> None:
    program = load(path, target=CONVERSION)
    found = optimize(program, fuse=True)
    assert check_program(found)
    if len(program.instructions) < 300:
        same_outcome(program, found)


def test_a_ring_becomes_one_lane() -> None:
    """NCCL's ring, found: of 2(n-1) receives and sends of a rank, all but the first send and the last receive fuse."""

    @algorithm("all_reduce", ranks=4, chunks=4)
    def ring(a: Recording) -> None:
        for chunk in range(4):
            x = a.input(chunk, chunk=chunk)
            for hop in range(1, 7):
                x = x.reduce(to=(chunk + hop) % 4) if hop < 4 else x.copy(to=(chunk + hop) % 4)

    program, by_hand = ring.as_written(), ring_all_reduce(4)
    found = optimize(program, fuse=True)
    assert len(found.lane_start[0]) == 4
    assert opcodes(found) == opcodes(by_hand)
    assert scratch_slots(found) == 0


def test_lanes_that_wait_for_others_stay_apart() -> None:
    """A rank that sends on what comes from two peers on one connection has no lane to join."""

    @algorithm("gather", ranks=4)
    def through_one(a: Recording) -> None:
        a.input(0).copy()
        a.input(1).copy(to=0)
        for far in (2, 3):
            a.input(far).copy(to=1).copy(to=0, lane=1)

    written, found = through_one.as_written(), through_one.program()
    assert opcodes(found) == opcodes(written)
    assert len(found.lane_start[0]) == len(written.lane_start[0])


def test_copies_that_nobody_needs_go() -> None:
    @algorithm("broadcast", ranks=3)
    def roundabout(a: Recording) -> None:
        kept = a.input(0).copy(into=a.scratch(a.input(0)))
        again = kept.copy(into=a.scratch(kept))
        again.copy(to=0)
        again.copy(to=1)
        again.copy(to=2)
        again.copy(to=1, into=a.scratch(again, rank=1))  # nobody reads it there

    written, found = roundabout.as_written(), roundabout.program()
    same_outcome(written, found)
    assert opcodes(written) == {"copy": 3, "send": 3, "recv": 3}
    assert opcodes(found) == {"copy": 1, "send": 2, "recv": 2}
    assert scratch_slots(found) == 0


def test_a_copy_of_what_changes_is_kept() -> None:
    """Scratch is written over between the copy and its use."""

    @algorithm("all_gather", ranks=2)
    def swapped(a: Recording) -> None:
        place = a.scratch(a.output(0, block=0))
        kept = a.input(0).copy(into=place)
        first = kept.copy(into=a.scratch(kept))
        kept.copy(into=a.output(0, block=0))
        first.copy(to=1)
        a.input(1).copy()
        a.input(1).copy(to=0)

    same_outcome(swapped.as_written(), swapped.program())


def test_neighbours_travel_as_one_message() -> None:
    @algorithm("broadcast", ranks=3, chunks=4, coalesce=True, fuse=True)
    def chunk_by_chunk(a: Recording) -> None:
        a.input(0).copy()
        for chunk in range(a.chunks):
            a.input(0, chunk=chunk).copy(to=1).copy(to=2)

    written, found = chunk_by_chunk.as_written(), chunk_by_chunk.program()
    same_outcome(written, found)
    assert opcodes(written)["send"] == 8
    assert opcodes(found) == {"copy": 1, "send": 1, "recv_copy_send": 1, "recv": 1}
    assert found.field("count").tolist() == [4, 4, 4, 4]
    limited = optimize(written, replace(CPU, message_slots=2), coalesce=True)
    same_outcome(written, limited)
    assert limited.field("count")[limited.field("opcode") == Opcode.send].max() == 2


def test_messages_that_would_wait_for_each_other_stay_apart() -> None:
    """The second message needs an answer to the first."""

    @algorithm("all_reduce", ranks=2, chunks=2, coalesce=True)
    def answered(a: Recording) -> None:
        first = a.input(0, chunk=0).reduce(to=1)
        first.copy(to=0)
        a.input(0, chunk=1).reduce(to=1).copy(to=0)

    same_outcome(answered.as_written(), answered.program())


def test_programs_without_a_tape_come_back() -> None:
    program = one_sided_gather()
    assert not Tape.takes(program)
    assert optimize(program, fuse=True) is program


@st.composite
def recordings(draw: st.DrawFn) -> Program:
    """Random detours: values copied about over random lanes, then everything brought where it belongs."""
    kind = draw(st.sampled_from(("all_gather", "broadcast", "all_reduce", "reduce", "all_to_all")))
    ranks, chunks = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    instances = draw(st.integers(1, 2))

    @algorithm(kind, ranks=ranks, chunks=chunks, instances=instances)
    def random(a: Recording) -> None:
        starts = [
            (a.input(rank, block, chunk), block, chunk)
            for rank in range(ranks)
            for block in range(1 if kind != "all_to_all" else ranks)
            for chunk in range(chunks)
            if kind != "broadcast" or rank == 0
        ]
        sums: dict[tuple[int, int], list[int]] = {}
        for position in draw(st.permutations(range(len(starts)))):
            at, block, chunk = starts[position]
            origin = at.rank
            for stop in draw(st.lists(st.integers(0, ranks - 1), max_size=3)):
                at = at.copy(to=stop, into=a.scratch(at, rank=stop), lane=draw(st.integers(0, 1)))
            if a.collective.combining:
                sums.setdefault((block, chunk), []).append(position)
                starts[position] = (at, block, chunk)
            elif kind == "all_to_all":
                at.copy(to=block, into=a.output(block, block=origin, chunk=chunk))
            else:
                for rank in range(ranks):
                    into = a.output(rank, block=origin if kind == "all_gather" else 0, chunk=chunk)
                    at.copy(to=rank, into=into, lane=draw(st.integers(0, 1)))
        for positions in sums.values():
            first, *others = (starts[position][0] for position in positions)
            total = first.add(*others) if draw(st.booleans()) else first
            if total is first:
                for other in others:
                    total = total.add(other)
            for rank in range(ranks if kind == "all_reduce" else 1):
                if rank != total.rank or total.slots[0][0] != Space.output:
                    total.copy(to=rank)

    return random.as_written()


@examples(25)
@given(recordings())
def test_random_algorithms_keep_their_outcome(program: Program) -> None:
    for coalesce in (False, True):
        better = optimize(program, coalesce=coalesce, fuse=True)
        same_outcome(program, better)
        assert len(better.instructions) <= len(program.instructions)


def test_lanes_are_joined_as_far_as_the_target_asks(tmp_path: Path) -> None:
    """All_to_all among 17 ranks has 33 lanes on one channel, MSCCL 32."""
    program = _core.build("direct", "all_to_all", 17, 0, None)
    with pytest.raises(TargetError, match="more than 32 lanes on channel 0"):
        fit(program, MSCCL)
    found = within_lanes(program, MSCCL)
    assert fit(found, MSCCL) == found
    assert len(found.lane_start[0]) == 17 * 32
    assert check_program(found).fault is None
    assert opcodes(found) == opcodes(program)
    path = tmp_path / "a2a.xml"
    path.write_text(msccl_xml_text(program))
    assert check_program(read_msccl_xml(path), MSCCL.fifo_depth)
    few = within_lanes(ring_all_reduce(3), replace(MSCCL, lanes_per_channel=1))
    assert few == ring_all_reduce(3)


@pytest.mark.parametrize("weights", [(1, 2), (2, 6, 4), (5, 1, 1)])
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all"])
def test_even_chunks_keep_the_outcome(kind: str, weights: tuple[int, ...]) -> None:
    schedule = syntony.synthesize("mesh:2x3", Collective.make(kind, 6, weights=weights), engine="greedy")
    program = lower(schedule, CONVERSION)
    finer = even(program)
    assert set(finer.chunks[:, 1].tolist()) == {1}
    assert len(finer.chunks) * int(np.gcd.reduce(weights)) == program.chunks[:, 1].sum()
    assert check_program(finer).fault is None
    assert Counter(finer.field("opcode").tolist()) == Counter(program.field("opcode").tolist())
    assert even(finer) is finer

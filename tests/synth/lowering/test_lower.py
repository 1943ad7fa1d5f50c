"""Lowering: what a checked Schedule says is what its Program does, by the checker and by running it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_program, check_schedule
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import ONE_SIDED, Opcode, Space
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.target import CPU, MSCCL, Target, TargetError, fit
from syntony.synth.model.values import ValueBuilder
from syntony.topologies import Link, Node, Topology
from syntony.topologies.parse import parse
from tests.synth import random_executor
from tests.synth.programs import exchange, one_sided_gather, program, relay_broadcast, ring_all_reduce
from tests.synth.schedules import SCHEDULES, chain_all_reduce, engine, link_between, ring_all_gather, star_reduce


def proven(schedule: Schedule) -> Program:
    assert check_schedule(schedule).fault is None
    program = lower(schedule, CPU)
    assert check_program(program).fault is None
    for seed in range(4):
        for in_place in [mode for mode in (False, True) if (program.in_place if mode else program.out_of_place)]:
            random_executor.run(program, in_place, random.Random(seed))
    return program


@pytest.mark.parametrize("name", SCHEDULES)
def test_lowered_schedules_are_proven_and_run_right(name: str) -> None:
    schedule = SCHEDULES[name]()
    program = proven(schedule)
    assert program.ranks == schedule.collective.ranks
    assert program.collective == schedule.collective.kind
    assert program.fifo_depth == 1
    assert program.in_place
    assert program.out_of_place
    sends = np.isin(program.field("opcode"), (Opcode.send,)).sum()
    assert sends == len(schedule.transfers)


@pytest.mark.parametrize(
    ("topology", "kind", "chunks", "steps", "rounds"),
    [
        ("ring:4", "reduce_scatter", 1, 2, 4),
        ("full:3", "all_to_all", 1, 1, 1),
        ("mesh:2x2", "gather", 1, 2, 2),
        ("mesh:2x2", "scatter", 1, 2, 2),
        ("ring:4", "broadcast", 2, 2, 2),
        ("ring:4", "reduce", 2, 2, 2),
    ],
)
def test_every_collective_of_the_engine(topology: str, kind: str, chunks: int, steps: int, rounds: int) -> None:
    proven(engine(topology, kind, chunks, steps, rounds))


@given(st.integers(2, 9))
def test_chain_takes_no_detour_through_scratch(ranks: int) -> None:
    """Sums of a message and what is there need one slot each, and the whole sum goes straight to the output."""
    program = proven(chain_all_reduce(ranks))
    scratch = np.count_nonzero(program.slots[:, 1] == Space.scratch)
    assert scratch == ranks - 2  # the partial sums of the ranks between
    assert set(program.field("opcode").tolist()) == {Opcode.send, Opcode.recv, Opcode.recv_reduce}
    assert program.rounds_per_hop == (ranks > 2)


def test_declared_order_of_a_sum_is_kept() -> None:
    """One reduce of all operands, in the order of the value table, rounded once."""
    program = proven(star_reduce(4))
    assert not program.rounds_per_hop
    row = int(np.flatnonzero(program.field("opcode") == Opcode.reduce)[0])
    assert program.instructions[row, 5:7].tolist() == [Space.input, 0]
    spaces = program.operands[:3, 0].tolist()
    assert spaces == [Space.scratch] * 3
    listing = str(program)
    for slot in program.operands[:3, 1].tolist():
        assert f"recv scratch[{slot}]" in listing


def test_members_of_a_larger_machine() -> None:
    """Rank i of the Program is member i of the collective, wherever it lives."""
    topology = parse("full:5")
    collective = Collective.make("broadcast", members=(4, 1, 2), root=2)
    values = ValueBuilder.of_chunks(collective)
    rows = [
        Transfer(0, 0, 2, 0, 0, (link_between(topology, 2, 4),)),
        Transfer(0, 0, 0, 1, 1, (link_between(topology, 4, 1),)),
    ]
    program = proven(Schedule(topology, collective, values.build(), Transfers.of(rows)))
    assert (program.ranks, program.root) == (3, 2)


def test_routes_get_channels_of_their_own() -> None:
    """Two cables between one pair: messages on one do not wait for those on the other."""
    nodes = (Node(0, "rank", "a"), Node(1, "rank", "b"))
    links = tuple(Link(i, i % 2, 1 - i % 2, 1e-6, Fraction(1)) for i in range(4))
    collective = Collective.make("broadcast", 2, chunks_per_block=4)
    values = ValueBuilder.of_chunks(collective)
    rows = [Transfer(chunk, chunk, 0, 1, chunk // 2, (0 if chunk % 2 else 2,)) for chunk in range(4)]
    schedule = Schedule(Topology("cables", nodes, links), collective, values.build(), Transfers.of(rows))
    program = proven(schedule)
    assert program.channels == 2
    assert lower(schedule, replace(CPU, channels=1)).channels == 1


@dataclass
class RecordingBuilder:
    """A stand-in for the core's builder that keeps the calls."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    slots: int = 0

    def __call__(self, *header: object) -> RecordingBuilder:
        self.calls.append(header)
        return self

    def input(self, rank: int, chunk: int) -> str:
        return f"input {chunk} of {rank}"

    def output(self, rank: int, chunk: int) -> str:
        return f"output {chunk} of {rank}"

    def scratch(self, rank: int, chunk: int) -> str:
        self.slots += 1
        return f"scratch {self.slots} of {rank}"

    def copy(self, *call: object) -> None:
        self.calls.append(("copy", *call))

    def reduce(self, rank: int, dst: str, sources: Sequence[str]) -> None:
        self.calls.append(("reduce", rank, dst, *sources))

    def transfer(self, *call: object) -> None:
        self.calls.append(("transfer", *call))

    def transfer_reduce(self, *call: object) -> None:
        self.calls.append(("transfer_reduce", *call))

    def skew(self, slices: int) -> None:
        self.calls.append(("skew", slices))

    def finish(self) -> object:
        return exchange(2)


def test_what_is_written_down() -> None:
    builder = RecordingBuilder()
    lower(chain_all_reduce(3), CPU, builder)
    assert builder.calls == [
        ("all_reduce on mesh:3 by hand", "all_reduce", 3, 0, [(0, 1)]),
        ("skew", 0),
        ("transfer_reduce", 0, "input 0 of 0", 1, "scratch 1 of 1", "input 0 of 1", 0),
        ("skew", 1),
        ("transfer_reduce", 1, "scratch 1 of 1", 2, "output 0 of 2", "input 0 of 2", 0),
        ("skew", 2),
        ("transfer", 2, "output 0 of 2", 1, "output 0 of 1", 0),
        ("skew", 3),
        ("transfer", 1, "output 0 of 1", 0, "output 0 of 0", 0),
    ]


def test_own_block_is_copied_to_the_output() -> None:
    builder = RecordingBuilder()
    lower(ring_all_gather(2), CPU, builder)
    assert builder.calls[1:] == [
        ("skew", 0),
        ("transfer", 0, "input 0 of 0", 1, "output 0 of 1", 0),
        ("transfer", 1, "input 1 of 1", 0, "output 1 of 0", 0),
        ("copy", 0, "output 0 of 0", "input 0 of 0"),
        ("copy", 1, "output 1 of 1", "input 1 of 1"),
    ]


# --- targets ----------------------------------------------------------------------------------------------------------


def test_a_name_is_cut_to_what_the_target_takes() -> None:
    assert fit(ring_all_reduce(3, name="n" * 60 + "ame of it"), MSCCL).name == "n" * 60 + "ame"


SMALL = replace(MSCCL, name="small", lanes=2, lane_instructions=3, message_slots=1, name_length=7, lanes_per_channel=2)


@pytest.mark.parametrize(
    ("make", "target", "told"),
    [
        (lambda: ring_all_reduce(4), Target("t", 1, 32), "its connections need deeper FIFOs (2, limit 1)"),
        (lambda: ring_all_reduce(4), Target("t", 2, 0), "it uses more channels (1, limit 0)"),
        (lambda: ring_all_reduce(4), SMALL, "a lane has more instructions (7, limit 3)"),
        (lambda: exchange(3), SMALL, "a rank has more lanes (5, limit 2)"),
        (lambda: exchange(3), replace(SMALL, lanes=9), "rank 0 has more than 2 lanes on channel 0"),
        (
            one_sided_gather,
            CPU,
            "peer_read and peer_write are not supported (rank 0, lane 1, instruction 1 (peer_read))",
        ),
        (one_sided_gather, replace(MSCCL, one_sided=True), "signals are not supported"),
        (relay_broadcast, MSCCL, "its chunks have weights 1 to 2; they must be equal"),
    ],
)
def test_fit_refuses_by_name(make: Callable[[], Program], target: Target, told: str) -> None:
    program = make()
    with pytest.raises(TargetError) as error:
        fit(program, target)
    assert str(error.value).startswith(f"program '{program.name}' does not fit target '{target.name}': ")
    assert told in str(error.value)


def test_lanes_with_two_peers_are_refused_where_one_is_the_limit() -> None:
    lane = [{"op": "send", "src": ["input", 0], "to": 1}, {"op": "send", "src": ["input", 0], "to": 2}]
    copy = [{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}]
    leaves = [([], [0], [], [[{"op": "recv", "dst": ["output", 0], "from": 0}]]) for _ in range(2)]
    two_peers = program("broadcast", [[0, 1]], [([0], [0], [], [lane, copy]), *leaves])
    assert check_program(two_peers)
    with pytest.raises(TargetError, match="rank 0, lane 0 sends to 1, 2; it must be one"):
        fit(two_peers, MSCCL)


def test_cpu_takes_what_is_two_sided() -> None:
    for make in (lambda: ring_all_reduce(4), lambda: exchange(4), relay_broadcast):
        assert fit(make(), CPU) == make()
        assert not ONE_SIDED[make().field("opcode")].any()

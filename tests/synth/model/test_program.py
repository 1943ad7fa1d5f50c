"""Program: construction refuses what cannot be, exchange with the core and with files loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.base.files.fields import FileError
from syntony.synth.formats.program_file import from_dict, program_text
from syntony.synth.model.instructions import COLLECTIVES, INSTRUCTION_FIELDS, Opcode, ProgramError
from syntony.synth.model.program import Program
from tests.synth.programs import exchange, one_sided_gather, program, relay_broadcast, ring_all_reduce

PROGRAMS: list[Callable[[], Program]] = [
    lambda: ring_all_reduce(4),
    lambda: exchange(3),
    relay_broadcast,
    one_sided_gather,
]


@pytest.mark.parametrize("make", PROGRAMS)
def test_files_and_core_give_the_program_back(make: Callable[[], Program]) -> None:
    original = make()
    assert from_dict(json.loads(program_text(original)), "here") == original
    again = Program(**original.columns())
    assert again == original
    assert again.hash == original.hash


@given(st.sampled_from([(a.name, c) for a in _core.algorithms() for c in a.collectives]), st.integers(1, 9))
def test_built_programs_survive_the_file(built: tuple[str, str], ranks: int) -> None:
    original = _core.build(*built, ranks)
    assert from_dict(json.loads(program_text(original)), "here") == original


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"fifo_depth": 7},
        {"in_place": False},
        {"rounds_per_hop": False},
    ],
)
def test_every_field_is_hashed(change: dict[str, Any]) -> None:
    original = ring_all_reduce(4)
    assert original.replace(**change).hash != original.hash
    assert original.replace(**change) != original


def test_names_are_those_of_the_core() -> None:
    for collective in COLLECTIVES:
        built = _core.build("direct", collective, 2)
        assert built.collective == collective


def test_listing() -> None:
    assert str(exchange(2)).splitlines() == [
        "by hand: all_reduce on 2 ranks, 1 chunk, FIFO depth 1, out_of_place and in_place",
        "rank 0",
        "  lane 0",
        "      0  send input[0] -> rank 1",
        "  lane 1",
        "      0  recv scratch[0] = message of rank 1",
        "  lane 2",
        "      0  reduce output[0] = input[0] + scratch[0]    after 0.0, 1.0",
        "rank 1",
        "  lane 0",
        "      0  send input[0] -> rank 0",
        "  lane 1",
        "      0  recv scratch[0] = message of rank 0",
        "  lane 2",
        "      0  reduce output[0] = scratch[0] + input[0]    after 0.0, 1.0",
    ]
    assert "peer_write rank 0's output[1] = input[0]" in str(one_sided_gather())
    assert "recv_reduce_copy_send output[1] = message of rank 3 + input[1] -> rank 1" in str(ring_all_reduce(4))


def with_field(row: int, name: str, value: int) -> Callable[[], object]:
    def make() -> object:
        instructions = ring_all_reduce(3).instructions.copy()
        instructions[row, INSTRUCTION_FIELDS.index(name)] = value
        return ring_all_reduce(3).replace(instructions=instructions)

    return make


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ring_all_reduce(3).replace(collective="all"), "there is no collective 'all'; there are all_reduce"),
        (lambda: ring_all_reduce(3).replace(root=3), "root 3 is not a rank; ranks are 0..2"),
        (lambda: ring_all_reduce(3).replace(fifo_depth=0), "fifo_depth is 0; a connection holds at least 1 message"),
        (
            lambda: ring_all_reduce(3).replace(in_place=False, out_of_place=False),
            "a program must claim out_of_place, in_place or both",
        ),
        (lambda: ring_all_reduce(3).replace(chunks=np.zeros((0, 2), int)), "table 'chunks' is empty"),
        (lambda: ring_all_reduce(3).replace(chunks=[[0, 1], [0, 0], [0, 1]]), "chunk 1 has weight 0"),
        (lambda: ring_all_reduce(3).replace(chunks=[[0, 1], [2, 1], [0, 1]]), "chunk 1 is of block 2"),
        (
            lambda: ring_all_reduce(3).replace(chunks=[[0, 1, 2]]),
            "table 'chunks' has rows of 3 numbers",
        ),
        (lambda: ring_all_reduce(3).replace(chunks=[[0, 1 << 40]]), "table 'chunks' must hold 32-bit integers"),
        (lambda: ring_all_reduce(3).replace(chunks=[[0, 1], [0, 1]]), "slot row 2 has chunk 2; it must be 0..1"),
        (lambda: ring_all_reduce(3).replace(slots=ring_all_reduce(3).slots[::-1]), "slot row 3 is out of order"),
        (
            with_field(1, "opcode", 13),
            "rank 0, lane 0, instruction 1 (opcode 13): there is no such opcode",
        ),
        (with_field(0, "agent", 5), "agent 5 does not exist"),
        (with_field(7, "lane", 2), "rank 1, lane 2, instruction 0 (recv_reduce_copy_send): lane 2 is out of order"),
        (
            with_field(7, "send_peer", 1),
            "lane 0, instruction 2 (recv_reduce_copy_send): send_peer 1 is the rank itself",
        ),
        (
            with_field(7, "recv_peer", -1),
            "lane 0, instruction 2 (recv_reduce_copy_send): recv_peer -1 is not a rank",
        ),
        (with_field(7, "count", 0), "count is 0; it must be at least 1"),
        (with_field(7, "src_index", 3), "src takes 1 slot(s) from input[3] of rank 1, which has 3 of that space"),
        (with_field(7, "src_space", 3), "src space 3 is not 0 (input), 1 (output) or 2 (scratch)"),
        (with_field(7, "channel", 1 << 16), "channel 65536 is not in 0..65535"),
        (with_field(7, "operand_count", 1), "instructions name 1 operands, table 'operands' has 0 rows"),
        (with_field(7, "dependency_count", -1), "dependency_count -1 is negative"),
        (
            lambda: exchange(3).replace(dependencies=[[9, 0], *exchange(3).dependencies[1:].tolist()]),
            "rank 0, lane 4, instruction 0 (reduce): it waits for lane 9, instruction 0, which does not exist",
        ),
        (
            lambda: exchange(3).replace(operands=[[2, 9], *exchange(3).operands[1:].tolist()]),
            "rank 0, lane 4, instruction 0 (reduce): operand 0 takes 1 slot(s) from scratch[9] of rank 0, which has 2",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ProgramError) as error:
        make()
    assert told in str(error.value)


@pytest.mark.parametrize("table", ["chunks", "slots", "instructions", "operands", "dependencies", "space_start"])
def test_tables_are_read_only_views_of_the_cores_memory(table: str) -> None:
    original = exchange(3)
    rows = getattr(original, table)
    assert np.shares_memory(rows, getattr(original, table))
    assert not rows.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        rows.setflags(write=True)
    kept = rows.tolist()
    del original
    assert rows.tolist() == kept


def test_what_a_program_was_made_from_is_not_its_memory() -> None:
    """Nobody can change a Program after it was validated."""
    columns = exchange(3).columns() | {"instructions": exchange(3).instructions.copy()}
    made = Program(**columns)
    columns["instructions"][:] = -7
    assert made == exchange(3)


def edited(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(program_text(exchange(2)))
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return document


SEND = ("agents", 0, "lanes", 0, 0)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("version",), 2, "f.json: version is 2; this reader knows version 1"),
        (("ranks",), 3, "f.json: agents has 2 entries for 3 ranks; one per rank is right"),
        (("ranks",), 1 << 20, "f.json: ranks is 1048576; it must be 1..65536"),
        (("in_place",), 1, "f.json: in_place is 1; it must be true or false"),
        (("chunks",), [[0]], "f.json: chunks[0] is [0]; it must be a pair of whole numbers"),
        (("agents", 1, "input"), ..., 'f.json: agents[1] has no "input"'),
        (
            ("agents", 1, "lanes"),
            [[]],
            "f.json: agents[1].lanes[0] is []; a lane is a list of instructions, at least one",
        ),
        ((*SEND, "op"), "sand", 'f.json: agents[0].lanes[0][0].op is "sand"; it must be one of nop, copy'),
        ((*SEND, "src"), ["input", "0"], 'f.json: agents[0].lanes[0][0].src is ["input", "0"]; a slot is'),
        ((*SEND, "src"), [["input"], 0], "a slot is"),
        ((*SEND, "src"), ["input", True], "a slot is"),
        ((*SEND, "too"), 1, 'f.json: agents[0].lanes[0][0] has the unknown key "too"'),
    ],
)
def test_malformed_files(path: tuple[str | int, ...], value: object, told: str) -> None:
    with pytest.raises(FileError) as error:
        from_dict(edited(path, value), "f.json")
    assert told in str(error.value)


def test_files_of_what_no_program_can_be() -> None:
    told = "f.json: rank 0, lane 0, instruction 0 (send): send_peer 7 is not a rank; ranks are 0..1"
    with pytest.raises(ProgramError) as error:
        from_dict(edited((*SEND, "to"), 7), "f.json")
    assert str(error.value) == told


@pytest.mark.parametrize("stamp", [None, {"hash": "0x0123456789abcdef", "checker": 1}, "nonsense"])
def test_stamps_of_old_files_are_passed_by(stamp: object) -> None:
    document = json.loads(program_text(exchange(3)))
    assert "stamp" not in document
    assert from_dict(document | {"stamp": stamp}, "here") == exchange(3)


def test_programs_without_instructions() -> None:
    empty = program("all_reduce", [[0, 1]], [([0], [0], [], [])])
    assert len(empty.instructions) == 0
    assert Program(**empty.columns()) == empty
    assert Opcode(0).name == "nop"


def test_a_group_runs_the_very_program_that_it_was_given() -> None:
    """Launching copies no table: what Python sees and what the executor reads is one memory."""

    class Alone:
        rank, size = 0, 1

        def all_gather(self, _: str, blob: bytes) -> list[bytes]:
            return [blob]

    mine = _core.build("ring", "all_reduce", 1)
    group = _core.Communicator(_core.Process(), Alone(), 10.0, "alone")
    group.add_program("mine", mine)
    assert group.program_for("all_reduce", 0, 8, "mine") is mine

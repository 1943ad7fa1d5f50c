"""ProgramBuilder, the Program columns and validate: orders, facts, round trips and refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, ends, random_inputs, run, starts

COLLECTIVES = _core.algorithms()[0].collectives
SIZE = 6  # elements of every block in these tests


class Sequential:
    """The meaning of a builder's calls: memory of every slot, changed call by call, inputs and outputs disjoint."""

    def __init__(self, collective: str, ranks: int, root: int, chunks: list[tuple[int, int]]) -> None:
        self.builder = _core.ProgramBuilder("random", collective, ranks, root, chunks)
        self.columns = self.builder.finish().columns()
        self.ranks = ranks
        self.slots: list[list[tuple[Any, int]]] = []  # per rank: (slot, chunk)
        self.inputs = random_inputs(self.columns, [SIZE] * blocks_of(collective, ranks), np.random.default_rng(7))
        self.memory: dict[tuple[int, int, int], np.ndarray] = {}
        for rank in range(ranks):
            mine = []
            for chunk, (block, _) in enumerate(chunks):
                if starts(collective, ranks, root, rank, block):
                    slot = self.builder.input(rank, chunk)
                    mine.append((slot, chunk))
                    parts = [i for i, (b, _) in enumerate(chunks) if b == block]
                    share = SIZE // len(parts)
                    begin = parts.index(chunk) * share
                    self.memory[rank, 0, slot.index] = self.inputs[rank][block][begin : begin + share]
                if ends(collective, ranks, root, rank, block):
                    mine.append((self.builder.output(rank, chunk), chunk))
                mine.append((self.builder.scratch(rank, chunk), chunk))
            self.slots.append(mine)

    def holds(self, rank: int, slot: Any) -> bool:
        return (rank, slot.space, slot.index) in self.memory

    def value(self, rank: int, slot: Any) -> np.ndarray:
        return self.memory[rank, slot.space, slot.index]

    def write(self, rank: int, slot: Any, value: np.ndarray) -> None:
        self.memory[rank, slot.space, slot.index] = value

    def random_call(self, draw: st.DrawFn) -> None:
        """One valid move between slots of one chunk."""
        sender, receiver = draw(st.integers(0, self.ranks - 1)), draw(st.integers(0, self.ranks - 1))
        full = [(slot, chunk) for slot, chunk in self.slots[sender] if self.holds(sender, slot)]
        if not full:
            return
        source, chunk = draw(st.sampled_from(full))
        here = [slot for slot, other in self.slots[receiver] if other == chunk]
        targets = [slot for slot in here if slot.space != 0]
        operands = [slot for slot in here if self.holds(receiver, slot)]
        target = draw(st.sampled_from(targets))
        channel = draw(st.integers(0, 1))
        if sender == receiver:
            sources = [source, *draw(st.lists(st.sampled_from(operands), max_size=2))]
            self.write(receiver, target, sum(self.value(receiver, slot) for slot in sources))  # type: ignore[arg-type]
            self.builder.reduce(receiver, target, sources)
        elif operands and draw(st.booleans()):
            operand = draw(st.sampled_from(operands))
            self.write(receiver, target, self.value(sender, source) + self.value(receiver, operand))
            self.builder.transfer_reduce(sender, source, receiver, target, operand, channel)
        else:
            self.write(receiver, target, self.value(sender, source))
            self.builder.transfer(sender, source, receiver, target, channel)

    def outputs(self) -> list[dict[int, np.ndarray]]:
        """Per rank: chunk -> what its output slot holds, where anything was written."""
        return [
            {chunk: self.value(rank, s) for s, chunk in self.slots[rank] if s.space == 1 and self.holds(rank, s)}
            for rank in range(self.ranks)
        ]


@st.composite
def random_programs(draw: st.DrawFn) -> Sequential:
    collective = draw(st.sampled_from(COLLECTIVES))
    ranks = draw(st.integers(1, 3))
    shares = draw(st.integers(1, 2))
    chunks = [(block, 1) for block in range(blocks_of(collective, ranks)) for _ in range(shares)]
    model = Sequential(collective, ranks, draw(st.integers(0, ranks - 1)), chunks)
    for _ in range(draw(st.integers(1, 25))):
        model.random_call(draw)
    return model


@given(random_programs(), st.integers(0, 2**32 - 1))
def test_any_interleaving_means_the_order_of_calls(model: Sequential, seed: int) -> None:
    program = model.builder.finish()
    columns = program.columns()
    assert program.fifo_depth == 1
    rng = np.random.default_rng(seed)
    shares = len(columns["chunks"]) // blocks_of(program.collective, program.ranks)
    sizes = [SIZE] * blocks_of(program.collective, program.ranks)
    for in_place in (False, True) if program.in_place else (False,):
        got = run(columns, sizes, model.inputs, rng, in_place=in_place, slice_elements=2)
        for rank, want in enumerate(model.outputs()):
            for chunk, values in want.items():
                begin = chunk % shares * (SIZE // shares)
                piece = got[rank][int(columns["chunks"][chunk, 0])][begin : begin + len(values)]
                np.testing.assert_array_equal(piece, values, f"rank {rank}, chunk {chunk}, in_place {in_place}")


def shuffled_values(seed: int, columns: dict[str, Any]) -> list[bytes]:
    inputs = random_inputs(columns, [12], np.random.default_rng(0))
    outputs = run(columns, [12], inputs, np.random.default_rng(seed), slice_elements=1)
    return [held[0].tobytes() for held in outputs]


def test_the_dependencies_are_needed() -> None:
    """And the interpreter has teeth: without them, some order of the lanes computes something else."""
    columns = copied(_core.build("ring", "all_reduce", 4))
    assert len({tuple(shuffled_values(seed, columns)) for seed in range(20)}) == 1
    columns["dependencies"] = columns["dependencies"][:0]
    columns["instructions"][:, 12] = 0
    assert len({tuple(shuffled_values(seed, columns)) for seed in range(20)}) > 1


def pair() -> Any:
    """Two ranks, one chunk, all_reduce: 0 gathers and sums, 1 gets the sum."""
    builder = _core.ProgramBuilder("pair", "all_reduce", 2, 0, [(0, 1)])
    builder.transfer_reduce(1, builder.input(1, 0), 0, builder.output(0, 0), builder.input(0, 0))
    builder.transfer(0, builder.output(0, 0), 1, builder.output(1, 0))
    return builder


def test_lanes_and_dependencies_of_a_pair() -> None:
    columns = pair().finish().columns()
    rows = [tuple(row) for row in columns["instructions"].tolist()]
    assert rows == [
        # agent lane opcode dst   src   count recv send channel operands dependencies skew
        (0, 0, 5, 1, 0, 0, 0, 1, 1, -1, 0, 0, 0, 0),
        (0, 1, 3, 0, 0, 1, 0, 1, -1, 1, 0, 0, 1, 0),  # read after write
        (1, 0, 3, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 0),
        (1, 1, 4, 1, 0, 0, 0, 1, 0, -1, 0, 0, 1, 0),  # in place, the answer overwrites what was sent
    ]
    assert columns["dependencies"].tolist() == [[0, 0], [0, 0]]
    assert columns["slots"].tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]


def test_a_lane_waits_once_for_the_same_instruction() -> None:
    builder = _core.ProgramBuilder("fan", "broadcast", 3, 0, [(0, 1)])
    builder.transfer(0, builder.input(0, 0), 1, builder.output(1, 0))
    for _ in range(3):
        builder.transfer(1, builder.output(1, 0), 2, builder.scratch(2, 0))
    assert len(builder.finish().columns()["dependencies"]) == 1


def test_channels_are_connections_of_their_own() -> None:
    builder = _core.ProgramBuilder("channels", "broadcast", 2, 0, [(0, 1), (0, 1)])
    for chunk in range(2):
        builder.transfer(0, builder.input(0, chunk), 1, builder.output(1, chunk), channel=chunk)
    program = builder.finish()
    assert program.channels == 2
    assert program.columns()["instructions"][:, 1].tolist() == [0, 1, 0, 1]


def test_facts_follow_the_data() -> None:
    builder = pair()
    assert not builder.finish().rounds_per_hop
    builder.reduce(0, builder.output(0, 0), [builder.output(0, 0), builder.output(0, 0)])
    assert builder.finish().rounds_per_hop
    assert builder.finish().in_place
    builder.transfer(0, builder.input(0, 0), 1, builder.scratch(1, 0))  # in place, the output is there by now
    assert not builder.finish().in_place
    assert builder.finish().out_of_place


def test_place_is_the_output_where_there_is_one() -> None:
    builder = _core.ProgramBuilder("place", "reduce", 2, 1, [(0, 1)])
    assert builder.place(1, 0) == builder.output(1, 0)
    assert [repr(builder.place(0, 0)), repr(builder.place(0, 0))] == ["scratch[0]", "scratch[1]"]


def test_slots_and_chunk_tables_from_numpy() -> None:
    table = np.array([[0, 2], [0, 1]], np.int32)
    columns = _core.ProgramBuilder("weights", "all_reduce", 2, 0, table).finish().columns()
    np.testing.assert_array_equal(columns["chunks"], table)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda b: b.input(0, 1), "rank 0 has no chunk 1 in its input"),
        (lambda b: b.output(2, 0), "rank 2 has no chunk 0 in its output"),
        (lambda b: b.scratch(5, 0), "there is no rank 5; there are 2"),
        (lambda b: b.scratch(0, 9), "there is no chunk 9"),
        (lambda b: b.copy(0, b.output(0, 0), b.scratch(0, 0)), r"rank 0 reads scratch\[0\] before anything is written"),
        (lambda b: b.copy(0, b.input(0, 0), b.input(0, 0)), r"rank 0 writes input\[0\]; the input belongs to"),
        (lambda b: b.reduce(0, b.output(0, 0), []), "rank 0 reduces nothing"),
        (lambda b: b.transfer(1, b.input(1, 0), 1, b.output(1, 0)), "rank 1 sends to itself; copy instead"),
    ],
)
def test_a_wrong_move_gets_a_sentence(call: Any, sentence: str) -> None:
    builder = _core.ProgramBuilder("wrong", "all_reduce", 2, 0, [(0, 1)])
    with pytest.raises(ValueError, match=sentence):
        call(builder)


def test_chunks_of_unlike_size_do_not_mix() -> None:
    builder = _core.ProgramBuilder("mixed", "all_reduce", 2, 0, [(0, 1), (0, 2)])
    with pytest.raises(ValueError, match=r"rank 1 moves chunk 0 into output\[1\], which holds chunk 1"):
        builder.transfer(0, builder.input(0, 0), 1, builder.output(1, 1))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("x", "all_sum", 2, 0, []), "no collective 'all_sum'"),
        (("x", "gather", 0, 0, []), "a program has 1..65535 ranks, not 0"),
        (("x", "gather", 2, 2, []), "root 2 is not a rank; ranks are 0..1"),
        (("x", "gather", 2, 0, [(0, 1), (2, 1)]), "chunk 1 is of block 2; chunks go block by block"),
        (("x", "gather", 2, 0, [(0, 1), (1, 1), (0, 1)]), "chunk 2 is of block 0; chunks go block by block"),
        (("x", "gather", 2, 0, [(0, 1), (1, 1), (2, 1)]), "chunk 2 is of block 2, but gather on 2 ranks has 2"),
        (("x", "gather", 2, 0, [(0, 0)]), "chunk 0 has weight 0"),
    ],
)
def test_a_builder_that_cannot_be(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _core.ProgramBuilder(*arguments)


@given(random_programs())
def test_columns_round_trip(model: Sequential) -> None:
    program = model.builder.finish()
    again = _core.Program(**program.columns())
    assert again.hash == program.hash
    for key, value in program.columns().items():
        np.testing.assert_array_equal(again.columns()[key], value)


def test_hash_is_the_same_everywhere() -> None:
    """Ranks of two builds agree on it: the number is part of Program v1."""
    assert pair().finish().hash == 3287787262353304690


def fnv1a(data: bytes) -> int:
    state = 0xCBF29CE484222325
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


def words(*values: int, size: int = 4) -> bytes:
    return b"".join((value % 2 ** (8 * size)).to_bytes(size, "little") for value in values)


def slot_bytes(space: int, index: int) -> bytes:
    return words(space, size=1) + words(index)


def test_hash_is_fnv1a_over_every_field() -> None:
    """The whole layout of the hash, written down a second time."""
    program = _core.build("hierarchical", "all_reduce", 5)
    c = program.columns()
    collective = COLLECTIVES.index(c["collective"])
    data = words(len(c["name"]), size=8) + c["name"].encode() + words(collective, size=1)
    data += words(c["root"], c["fifo_depth"])
    data += words(c["out_of_place"], c["in_place"], c["rounds_per_hop"], size=1)
    data += words(len(c["chunks"]), size=8) + words(*c["chunks"].ravel().tolist()) + words(c["ranks"], size=8)
    operands, dependencies = iter(c["operands"].tolist()), iter(c["dependencies"].tolist())
    for rank in range(c["ranks"]):
        mine = c["slots"][c["slots"][:, 0] == rank]
        for space in range(3):
            chunks = mine[mine[:, 1] == space][:, 2].tolist()
            data += words(len(chunks), size=8) + words(*chunks)
        rows = c["instructions"][c["instructions"][:, 0] == rank]
        lanes = sorted(set(rows[:, 1].tolist()))
        data += words(len(lanes), size=8)
        for lane in lanes:
            own = rows[rows[:, 1] == lane].tolist()
            data += words(len(own), size=8)
            for _, _, opcode, *row in own:
                data += words(opcode, size=1) + slot_bytes(*row[0:2]) + slot_bytes(*row[2:4]) + words(*row[4:7])
                data += words(row[7], size=2) + words(row[8])
                data += b"".join(slot_bytes(*next(operands)) for _ in range(row[8])) + words(row[9])
                data += b"".join(words(*next(dependencies)) for _ in range(row[9]))
    assert program.hash == fnv1a(data)


@pytest.mark.parametrize("field", ["name", "fifo_depth", "out_of_place", "in_place", "rounds_per_hop"])
def test_hash_sees_every_scalar(field: str) -> None:
    columns = pair().finish().columns()
    before = _core.Program(**columns).hash
    columns[field] = {"name": "riap", "fifo_depth": 2}.get(field, not columns[field])
    assert _core.Program(**columns).hash != before


def copied(program: _core.Program) -> dict[str, Any]:
    """The columns, to be changed."""
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in program.columns().items()}


# Field positions in a row of `instructions`; the agent is field 0.
LANE, OPCODE, DST_SPACE, DST, SRC_SPACE, SRC = range(1, 7)
COUNT, RECV_PEER, SEND_PEER, CHANNEL, OPERANDS, DEPENDENCIES, SKEW = range(7, 14)


@pytest.mark.parametrize(
    ("row", "field", "value", "sentence"),
    [
        (0, OPCODE, 13, r"rank 0, lane 0, instruction 0 \(opcode 13\): there is no such opcode; opcodes are 0..12"),
        (0, OPCODE, -1, r"\(opcode -1\): there is no such opcode"),
        (1, DST_SPACE, 3, "dst space 3 is not 0"),
        (0, LANE, 1, "lane 1 is out of order"),
        (2, 0, 2, "agent 2 does not exist; agents are 0..1"),
        (0, DST, 1, r"rank 0, lane 0, instruction 0 \(recv_reduce\): dst takes 1 slot\(s\) from output\[1\]"),
        (
            2,
            SRC,
            5,
            r"rank 1, lane 0, instruction 0 \(send\): src takes 1 slot\(s\) from input\[5\] of rank 1",
        ),
        (2, SRC_SPACE, 2, r"src takes 1 slot\(s\) from scratch\[0\] of rank 1, which has 0"),
        (3, COUNT, 2, r"dst takes 2 slot\(s\) from output\[0\] of rank 1, which has 1"),
        (3, COUNT, 0, "count is 0"),
        (3, DST_SPACE, 0, r"rank 1, lane 1, instruction 0 \(recv\): it writes input\[0\], which is the user's"),
        (0, RECV_PEER, 2, "recv_peer 2 is not a rank; ranks are 0..1"),
        (0, RECV_PEER, -1, "recv_peer -1 is not a rank"),
        (1, SEND_PEER, 0, "send_peer 0 is the rank itself"),
        (1, CHANNEL, 1 << 16, "channel 65536 is not in 0..65535"),
        (1, SKEW, 1 << 16, "skew 65536 is not in 0..65535"),
        (1, SKEW, -1, "skew -1 is not in 0..65535"),
        (1, OPERANDS, 1, "instructions name 1 operands, table 'operands' has 0 rows"),
        (0, DEPENDENCIES, 1, "instructions name 3 dependencies, table 'dependencies' has 2 rows"),
        (1, DEPENDENCIES, 0, "instructions name 1 dependencies, table 'dependencies' has 2 rows"),
    ],
)
def test_columns_with_a_fault_are_refused(row: int, field: int, value: int, sentence: str) -> None:
    columns = copied(pair().finish())
    columns["instructions"][row, field] = value
    with pytest.raises(ValueError, match=sentence):
        _core.Program(**columns)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"fifo_depth": 0}, "fifo_depth is 0"),
        ({"root": 2}, "root 2 is not a rank; ranks are 0..1"),
        ({"slots": [[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 0]]}, "slot row 3 is out of order"),
        ({"slots": [[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 0]]}, "slot row 1 has chunk 1; it must be 0..0"),
        (
            {"slots": [[0, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]},
            "the input of rank 0 holds twice chunk 0",
        ),
        ({"collective": "broadcast"}, "slot row 2: the input of rank 1 cannot hold chunk 0 of block 0"),
        ({"dependencies": [[0, 0], [5, 0]]}, "waits for lane 5, instruction 0, which does not exist"),
        ({"dependencies": [[0, 0], [1, 0]]}, "waits for lane 1, instruction 0, which never runs before it"),
        ({"dependencies": [[0, 0]]}, "instructions name 2 dependencies, table 'dependencies' has 1 rows"),
        ({"operands": [[0, 0]]}, "instructions name 0 operands, table 'operands' has 1 rows"),
        ({"chunks": [[0, 1, 2]]}, "table 'chunks' has rows of 3 numbers; they must have 2"),
    ],
)
def test_tables_with_a_fault_are_refused(changes: dict[str, Any], sentence: str) -> None:
    columns = copied(pair().finish())
    for key, value in changes.items():
        columns[key] = np.array(value, np.int32) if isinstance(value, list) else value
    with pytest.raises(ValueError, match=sentence):
        _core.Program(**columns)


def test_one_lane_per_end_of_a_connection() -> None:
    builder = _core.ProgramBuilder("two", "broadcast", 2, 0, [(0, 1), (0, 1)])
    for chunk in range(2):
        builder.transfer(0, builder.input(0, chunk), 1, builder.output(1, chunk), channel=chunk)
    columns = copied(builder.finish())
    columns["instructions"][:, CHANNEL] = 0
    with pytest.raises(ValueError, match="rank 0 -> rank 1 on channel 0 is already fed by rank 0, lane 0"):
        _core.Program(**columns)


def test_one_sided_instructions_name_the_peers_slots() -> None:
    columns = copied(pair().finish())
    columns["instructions"][1] = [0, 1, 10, 1, 0, 1, 0, 1, -1, 1, 0, 0, 1, 0]  # peer_write into rank 1's output
    columns["instructions"][3, OPCODE] = 12  # wait
    program = _core.Program(**columns)
    assert program.one_sided
    columns["instructions"][1, DST] = 1
    with pytest.raises(ValueError, match=r"rank 0, lane 1, instruction 0 \(peer_write\): dst takes 1 slot\(s\) from"):
        _core.Program(**columns)


def crossed(row: list[int], operands: list[list[int]]) -> dict[str, Any]:
    """Two ranks with both chunks, a light and a heavy one, in every space, in scratch the other way round."""
    slots = [[rank, space, chunk] for rank in (0, 1) for space in range(3) for chunk in ((0, 1), (1, 0))[space == 2]]
    return {
        "name": "crossed", "collective": "all_reduce", "root": 0, "ranks": 2, "fifo_depth": 1,
        "out_of_place": True, "in_place": True, "rounds_per_hop": True,
        "chunks": np.array([[0, 1], [0, 9]], np.int32), "slots": np.array(slots, np.int32),
        "instructions": np.array([row], np.int32), "operands": np.array(operands, np.int32).reshape(-1, 2),
        "dependencies": np.zeros((0, 2), np.int32),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "operands", "sentence"),
    [
        ([0, 0, 1, 1, 1, 0, 0, 1, -1, -1, 0, 0, 0, 0], [], "(copy): src holds chunk 0 in input[0], and dst chunk 1 in"),
        ([1, 0, 1, 2, 0, 0, 0, 2, -1, -1, 0, 0, 0, 0], [], "rank 1, lane 0, instruction 0 (copy): src holds chunk 0"),
        ([0, 0, 2, 1, 1, 0, 0, 1, -1, -1, 0, 1, 0, 0], [[0, 1]], "(reduce): src holds chunk 0 in input[0], and dst"),
        ([0, 0, 2, 1, 1, 0, 1, 1, -1, -1, 0, 2, 0, 0], [[0, 1], [2, 1]], "operand 1 holds chunk 0 in scratch[1], and"),
        ([0, 0, 5, 1, 1, 0, 0, 1, 1, -1, 0, 0, 0, 0], [], "(recv_reduce): src holds chunk 0 in input[0], and dst"),
        ([0, 0, 8, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0], [], "(recv_reduce_copy_send): src holds chunk 0 in input[0]"),
        ([0, 0, 9, 1, 1, 0, 0, 1, -1, 1, 0, 0, 0, 0], [], "(peer_read): src holds chunk 0 in input[0], and dst chunk"),
        ([0, 0, 10, 2, 0, 0, 0, 1, -1, 1, 0, 0, 0, 0], [], "(peer_write): src holds chunk 0 in input[0], and dst"),
    ],
)
def test_bytes_move_between_slots_of_one_chunk_only(row: list[int], operands: list[list[int]], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as refusal:
        _core.Program(**crossed(row, operands))
    assert str(refusal.value).endswith("; chunks differ in size")


def test_messages_may_span_slots() -> None:
    columns = _core.build("two_shot", "all_reduce", 1).columns()
    assert _core.Program(**columns).message_slots == 1
    builder = _core.ProgramBuilder("span", "broadcast", 2, 0, [(0, 1), (0, 1)])
    builder.transfer(0, builder.input(0, 0), 1, builder.output(1, 0))
    columns = copied(builder.finish())
    columns["instructions"][:, COUNT] = 2
    assert _core.Program(**columns).message_slots == 2


# --- append -----------------------------------------------------------------------------------------------------------

COPY, SEND, RECV, SIGNAL = 1, 3, 4, 11
INPUT, OUTPUT = 0, 1


def test_appended_messages_stay_in_flight() -> None:
    """Two sends before the first receive: the Program states that a connection must hold two messages."""
    builder = _core.ProgramBuilder("pair", "broadcast", 2, 0, [(0, 1), (0, 1)])
    builder.append(0, 7, COPY, (OUTPUT, 0), (INPUT, 0), 2, -1, -1, 0)
    for index in range(2):
        builder.append(0, 3, SEND, (0, 0), (INPUT, index), 1, -1, 1, 5)
    for index in range(2):
        builder.append(1, 0, RECV, (OUTPUT, index), (0, 0), 1, 0, -1, 5)
    columns = builder.finish().columns()
    assert columns["fifo_depth"] == 2
    assert columns["instructions"][:, :3].tolist() == [
        [0, 0, COPY],
        [0, 1, SEND],
        [0, 1, SEND],
        [1, 0, RECV],
        [1, 0, RECV],
    ]
    assert columns["in_place"]


def test_appended_ranges_wait_for_all_their_slots() -> None:
    builder = _core.ProgramBuilder("relay", "broadcast", 3, 0, [(0, 1), (0, 1)])
    builder.append(0, 0, COPY, (OUTPUT, 0), (INPUT, 0), 2, -1, -1, 0)
    for channel in range(2):
        builder.append(0, 1 + channel, SEND, (0, 0), (INPUT, channel), 1, -1, 1, channel)
        builder.append(1, channel, RECV, (OUTPUT, channel), (0, 0), 1, 0, -1, channel)
    builder.append(1, 2, SEND, (0, 0), (OUTPUT, 0), 2, -1, 2, 0)
    builder.append(2, 0, RECV, (OUTPUT, 0), (0, 0), 2, 1, -1, 0)
    relay_waits_for = builder.finish().columns()["dependencies"].tolist()[-2:]
    assert relay_waits_for == [[0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ((0, 0, SIGNAL, (0, 0), (0, 0), 1, -1, 1, 0), "a signal moves no data"),
        ((1, 0, RECV, (OUTPUT, 0), (0, 0), 1, 0, -1, 0), "receives 1 slots from rank 0, which sent nothing more"),
        ((1, 0, RECV, (OUTPUT, 0), (0, 0), 1, 0, -1, 1), "receives 1 slots from rank 0, which sent 2 in its next"),
        ((0, 0, COPY, (INPUT, 0), (INPUT, 1), 1, -1, -1, 0), "the input belongs to the caller"),
        ((0, 0, COPY, (OUTPUT, 1), (INPUT, 0), 1, -1, -1, 0), "moves chunk 0 into output[1], which holds chunk 1"),
        ((0, 0, SEND, (0, 0), (INPUT, 1), 2, -1, 1, 0), "has no slot input[2]"),
        ((0, 0, 99, (0, 0), (0, 0), 1, -1, 1, 0), "there is no opcode 99"),
        ((0, 0, COPY, (5, 0), (0, 0), 1, -1, 1, 0), "there is no space 5"),
    ],
)
def test_what_append_refuses(call: tuple[Any, ...], told: str) -> None:
    builder = _core.ProgramBuilder("pair", "broadcast", 2, 0, [(0, 1), (0, 1)])
    builder.append(0, 0, SEND, (0, 0), (INPUT, 0), 2, -1, 1, 1)
    with pytest.raises(ValueError, match=re.escape(told)):
        builder.append(*call)


def test_skews_of_a_builder_never_decrease() -> None:
    builder = _core.ProgramBuilder("skewed", "broadcast", 3, 0, [(0, 1)])
    builder.transfer(0, builder.input(0, 0), 1, builder.output(1, 0))
    plain = builder.finish()
    builder.skew(2)
    builder.transfer(1, builder.output(1, 0), 2, builder.output(2, 0))
    skewed = builder.finish()
    assert skewed.columns()["instructions"][:, SKEW].tolist() == [0, 0, 2, 2]
    assert plain.columns()["instructions"][:, SKEW].tolist() == [0, 0]
    with pytest.raises(ValueError, match="skew 1 comes after skew 2; it never decreases"):
        builder.skew(1)
    builder.copy(0, builder.output(0, 0), builder.input(0, 0))
    columns = builder.finish().columns()
    lane = np.flatnonzero((columns["instructions"][:, :2] == (1, 0)).all(axis=1))
    assert len(lane) == 1
    again = {**columns, "instructions": columns["instructions"].copy()}
    again["instructions"][:, SKEW] = 3
    assert _core.Program(**again).hash != _core.Program(**columns).hash

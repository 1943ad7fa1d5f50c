"""The executor against the independent interpreter, on Programs that no builder would write.

Random ones, whose outputs mean nothing but must be the same bits; and hand-made columns with the instructions that the
builders do not use: fused receives and sends, messages of several slots, signals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.program_interpreter import Machine, expected_outputs, random_inputs
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.harness import Rank, run_as_processes

SMALL_SLOTS = {"SYNTONY_SLOT_BYTES": "4096"}
COLLECTIVE = "all_reduce"
INPUT, OUTPUT = 0, 1
OPCODES = (
    "nop", "copy", "reduce", "send", "recv", "recv_reduce", "recv_copy_send", "recv_reduce_send",
    "recv_reduce_copy_send", "peer_read", "peer_write", "signal", "wait",
)  # fmt: skip
CODE = {name: number for number, name in enumerate(OPCODES)}
RECEIVES = {CODE[name] for name in OPCODES if name.startswith("recv") or name == "wait"}
SENDS = {CODE[name] for name in OPCODES if name.endswith("send") or name == "signal"}
COMBINES = {CODE[name] for name in OPCODES if name.startswith("recv_reduce")}
STORES = {CODE[name] for name in ("recv", "recv_reduce", "recv_copy_send", "recv_reduce_copy_send")}
Columns = dict[str, Any]


class FullMachine(Machine):
    """The interpreter with all two-sided instructions: a message is a list of slots' pieces."""

    def step(self, rank: int, lane: int) -> bool:
        found = self.next(rank, lane)
        if found is None:
            return False
        (opcode, dst_space, dst, src_space, src, count, source, target, channel, *_), turn = found
        if opcode <= CODE["reduce"]:
            return super().step(rank, lane)
        assert opcode in RECEIVES | SENDS
        incoming, outgoing = self.fifos[source, rank, channel], self.fifos[rank, target, channel]
        if opcode in RECEIVES and not incoming:
            return False
        if opcode in SENDS and len(outgoing) >= self.columns["fifo_depth"]:
            return False
        pieces = incoming.popleft() if opcode in RECEIVES else []
        if opcode == CODE["send"]:
            pieces = [self.view(rank, src_space, src + k, turn).copy() for k in range(count)]
        if opcode in COMBINES:
            pieces = [piece + self.view(rank, src_space, src + k, turn) for k, piece in enumerate(pieces)]
        if opcode in STORES:
            for k, piece in enumerate(pieces):
                self.view(rank, dst_space, dst + k, turn)[:] = piece
        if opcode in SENDS:
            outgoing.append(pieces)
        self.finish(rank, lane)
        return True


def interpreted(
    columns: Columns, inputs: list[dict[int, np.ndarray]], in_place: bool, rng: np.random.Generator
) -> list[bytes]:
    count = len(inputs[0][0])
    machine = FullMachine(columns, [count], inputs, in_place, int(rng.choice([97, 1 << 30])) if count < 2000 else 2003)
    machine.run(rng)
    return [b"".join(memory.tobytes() for _, memory in sorted(outputs.items())) for outputs in machine.outputs]


def execute(rank: Rank, programs: list[tuple[Columns, list[dict[int, np.ndarray]]]]) -> list[tuple[bytes, bytes]]:
    """The bytes of each Program's output, out of place and in place."""
    group = rank.join()
    results = []
    for number, (columns, inputs) in enumerate(programs):
        group.raw.add_program(f"p{number}", _core.Program(**columns))
        given = inputs[rank.rank][0]
        both = []
        for in_place in (False, True):
            source = given.copy()
            result = source if in_place else np.zeros_like(given)
            views = {0: source.view(np.uint8)}, {0: result.view(np.uint8)}
            group.run(COLLECTIVE, str(given.dtype), [len(given)], *views, algorithm=f"p{number}")
            both.append(result.tobytes())
        results.append((both[0], both[1]))
    group.shutdown()
    return results


def compare(
    ranks: int, programs: list[tuple[Columns, list[dict[int, np.ndarray]]]], rng: np.random.Generator, hosts: str
) -> None:
    results = run_as_processes(execute, ranks, programs, hosts=hosts, environment=SMALL_SLOTS)
    for number, (columns, inputs) in enumerate(programs):
        for in_place in (False, True):
            wanted = interpreted(columns, inputs, in_place, rng)
            for rank in range(ranks):
                assert results[rank][number][in_place] == wanted[rank], (columns["name"], number, rank, in_place)


# ---- random ---------------------------------------------------------------------------------------------------------


def random_program(rng: np.random.Generator, ranks: int) -> Columns:
    """Moves and sums of whatever is defined, from anywhere to anywhere. An input is not read once its output is
    written, because in place it is gone."""
    weights = [int(w) for w in rng.integers(1, 5, rng.integers(1, 5))]
    builder = _core.ProgramBuilder("random", COLLECTIVE, ranks, 0, [(0, weight) for weight in weights])
    chunks = range(len(weights))
    defined = {(r, c): [builder.input(r, c)] for r in range(ranks) for c in chunks}
    unwritten = set(defined)

    def destination(rank: int, chunk: int) -> _core.Slot:
        slots = defined[rank, chunk]
        choice = rng.integers(4)
        if choice == 0:
            if (rank, chunk) in unwritten:
                unwritten.discard((rank, chunk))
                slots.remove(builder.input(rank, chunk))
                slots.append(builder.output(rank, chunk))
            return builder.output(rank, chunk)
        scratch = [slot for slot in slots if slot.space == 2]
        if choice == 1 and scratch:
            return scratch[rng.integers(len(scratch))]
        return builder.scratch(rank, chunk)

    def source(rank: int, chunk: int) -> _core.Slot:
        return defined[rank, chunk][rng.integers(len(defined[rank, chunk]))]

    def put(rank: int, chunk: int, slot: _core.Slot) -> None:
        if slot not in defined[rank, chunk]:
            defined[rank, chunk].append(slot)

    skew, leap = 0, rng.choice([0.0, 0.2, 0.8])
    for _ in range(int(rng.integers(5, 60))):
        skew += int(rng.random() < leap) * int(rng.integers(1, 4))
        builder.skew(skew)
        chunk, rank, channel = int(rng.integers(len(weights))), int(rng.integers(ranks)), int(rng.integers(3))
        kind = rng.integers(4) if ranks > 1 else rng.integers(2)
        sources = [source(rank, chunk) for _ in range(int(rng.integers(1, 5)))]
        if kind == 0:
            slot = destination(rank, chunk)
            builder.copy(rank, slot, sources[0])
            put(rank, chunk, slot)
        elif kind == 1:
            slot = destination(rank, chunk)
            builder.reduce(rank, slot, sources)
            put(rank, chunk, slot)
        else:
            other = (rank + int(rng.integers(1, ranks))) % ranks
            operand = source(other, chunk)
            slot = destination(other, chunk)
            if kind == 2:
                builder.transfer(rank, sources[0], other, slot, channel)
            else:
                builder.transfer_reduce(rank, sources[0], other, slot, operand, channel)
            put(other, chunk, slot)
    for rank, chunk in sorted(unwritten):
        builder.copy(rank, builder.output(rank, chunk), source(rank, chunk))
    return dict(builder.finish().columns())


def with_inputs(columns: Columns, rng: np.random.Generator) -> tuple[Columns, list[dict[int, np.ndarray]]]:
    count = int(rng.choice([0, 1, 3, 29, 1000, 5003]))
    return columns, random_inputs(columns, [count], rng, floats=True)


@pytest.mark.parametrize(("ranks", "hosts"), [(1, ""), (2, ""), (4, ""), (3, "aab")])
def test_random_programs_give_the_interpreters_bits(ranks: int, hosts: str) -> None:
    rng = generator("random programs", ranks, hosts)
    compare(ranks, [with_inputs(random_program(rng, ranks), rng) for _ in range(20)], rng, hosts)


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(20))
def test_many_random_programs(turn: int) -> None:
    rng = generator("many random programs", turn)
    compare(4, [with_inputs(random_program(rng, 4), rng) for _ in range(100)], rng, "aabb" if turn % 2 else "")


# ---- fused ----------------------------------------------------------------------------------------------------------


class Table:
    """Rows of `instructions`, agent by agent and lane by lane."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.dependencies: list[list[int]] = []

    def add(
        self,
        agent: int,
        lane: int,
        name: str,
        dst: tuple[int, int] = (0, 0),
        src: tuple[int, int] = (0, 0),
        count: int = 1,
        recv: int = -1,
        send: int = -1,
        channel: int = 0,
        after: tuple[tuple[int, int], ...] = (),
        skew: int = 0,
    ) -> None:
        self.rows.append([agent, lane, CODE[name], *dst, *src, count, recv, send, channel, 0, len(after), skew])
        self.dependencies += [list(needed) for needed in after]


def fused_ring(rng: np.random.Generator, ranks: int, most: int = 3) -> Columns:
    """all_reduce round random rings, one per channel, in messages of `count` slots, at most `most`.

    Chunk group g of a ring starts at its g-th rank; partial sums go once round (recv_reduce_send), the whole sum is
    stored at the last rank (recv_reduce_copy_send) and copied round (recv_copy_send, at last recv). A lane apart sends
    a signal to the right and waits for one from the left before its nop.
    """
    rings = int(rng.integers(1, 4))
    counts = [int(c) for c in rng.integers((most + 1) // 2, most + 1, rings)]
    groups = [[sum(counts[:i]) * ranks + g * counts[i] for g in range(ranks)] for i in range(rings)]
    chunks = [[0, int(w)] for w in rng.integers(1, 5, sum(counts) * ranks)]
    orders = [rng.permutation(ranks).tolist() for _ in range(rings)]
    skews = [int(s) for s in rng.integers(0, 4, rings)]  # what is fused is equally far behind all the way
    table = Table()
    for rank in range(ranks):
        for ring, (order, count) in enumerate(zip(orders, counts, strict=True)):
            place = order.index(rank)
            left, right = order[place - 1], order[(place + 1) % ranks]
            ends = {"count": count, "channel": ring, "skew": skews[ring]}

            def first(step: int, ring: int = ring, place: int = place) -> int:
                return groups[ring][(place - step) % ranks]

            table.add(rank, ring, "send", src=(INPUT, first(0)), send=right, **ends)
            for step in range(1, ranks):
                name = "recv_reduce_send" if step < ranks - 1 else "recv_reduce_copy_send"
                slot = first(step)
                table.add(rank, ring, name, (OUTPUT, slot), (INPUT, slot), recv=left, send=right, **ends)
            for step in range(ranks - 1):
                slot = first(step)
                if step < ranks - 2:
                    table.add(rank, ring, "recv_copy_send", (OUTPUT, slot), recv=left, send=right, **ends)
                else:
                    table.add(rank, ring, "recv", (OUTPUT, slot), recv=left, **ends)
        lane, right, left = rings, (rank + 1) % ranks, (rank - 1) % ranks
        table.add(rank, lane, "signal", send=right, channel=rings)
        table.add(rank, lane, "wait", recv=left, channel=rings)
        table.add(rank, lane, "nop", after=((0, 2 * ranks - 2),), skew=skews[0])
    slots = [[rank, space, chunk] for rank in range(ranks) for space in (INPUT, OUTPUT) for chunk in range(len(chunks))]
    return {
        "name": f"fused ring of {ranks}", "collective": COLLECTIVE, "root": 0, "ranks": ranks, "fifo_depth": 2,
        "out_of_place": True, "in_place": True, "rounds_per_hop": True,
        "chunks": np.array(chunks, np.int32), "slots": np.array(slots, np.int32),
        "instructions": np.array(table.rows, np.int32), "operands": np.zeros((0, 2), np.int32),
        "dependencies": np.array(table.dependencies, np.int32).reshape(-1, 2),
    }  # fmt: skip


@pytest.mark.parametrize(("ranks", "hosts"), [(2, ""), (3, ""), (5, ""), (4, "aabb"), (3, "abc")])
def test_fused_instructions_and_messages_of_several_slots(ranks: int, hosts: str) -> None:
    rng = generator("fused", ranks, hosts)
    programs = [with_inputs(fused_ring(rng, ranks), rng) for _ in range(12)]
    compare(ranks, programs, rng, hosts)


@pytest.mark.parametrize(("ranks", "hosts"), [(3, ""), (3, "abc")])
def test_messages_of_more_slots_than_a_frame_has_elements(ranks: int, hosts: str) -> None:
    rng = generator("fused phases", ranks, hosts)
    programs = [with_inputs(fused_ring(rng, ranks, most), rng) for most in (1500, 1100, 2200)]
    compare(ranks, programs, rng, hosts)


def test_the_fused_ring_reduces() -> None:
    """Integers, so that the interpreter itself is held to the definition."""
    rng = generator("fused integers")
    columns = fused_ring(rng, 4)
    inputs = random_inputs(columns, [1001], rng)
    wanted = [outputs[0].tobytes() for outputs in expected_outputs(columns, [1001], inputs)]
    assert interpreted(columns, inputs, False, rng) == wanted
    compare(4, [(columns, inputs)], rng, "")

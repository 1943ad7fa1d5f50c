"""Runs a Program's columns on NumPy arrays: a second reading of program.hpp, sharing no code with the core.

Lanes of all agents are stepped in random order. A FIFO holds `fifo_depth` messages and no more, empty slices travel as
empty messages, and everything that nobody has written is poison. So a missing dependency, a wrong match or a cycle
shows up as a wrong sum or as a `DeadlockError` sooner or later; the proof is the checker's.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import numpy as np

INPUT, OUTPUT, SCRATCH = 0, 1, 2
NOP, COPY, REDUCE, SEND, RECV, RECV_REDUCE = range(6)
POISON = 1 << 40


class DeadlockError(AssertionError):
    """No lane of any agent can take a step."""


def blocks_of(collective: str, ranks: int) -> int:
    return {"all_reduce": 1, "broadcast": 1, "reduce": 1, "all_to_all": ranks * ranks}.get(collective, ranks)


def starts(collective: str, ranks: int, root: int, rank: int, block: int) -> bool:
    """The `input` column of the table in program.hpp."""
    if collective in ("all_reduce", "reduce_scatter", "reduce"):
        return True
    if collective in ("all_gather", "gather"):
        return block == rank
    if collective == "all_to_all":
        return block // ranks == rank
    return rank == root


def ends(collective: str, ranks: int, root: int, rank: int, block: int) -> bool:
    """The `output` column of the table in program.hpp."""
    if collective in ("all_reduce", "all_gather", "broadcast"):
        return True
    if collective in ("reduce_scatter", "scatter"):
        return block == rank
    if collective == "all_to_all":
        return block % ranks == rank
    return rank == root


def chunk_ranges(chunks: np.ndarray, block_sizes: list[int]) -> list[tuple[int, int]]:
    """Elements [begin, end) of its block that each chunk holds."""
    total: dict[int, int] = defaultdict(int)
    for block, weight in chunks.tolist():
        total[block] += weight
    before: dict[int, int] = defaultdict(int)
    ranges = []
    for block, weight in chunks.tolist():
        size = block_sizes[block]
        begin = size * before[block] // total[block]
        before[block] += weight
        ranges.append((begin, size * before[block] // total[block]))
    return ranges


class Machine:
    """The memory and the lanes of one run."""

    def __init__(
        self,
        columns: dict[str, Any],
        block_sizes: list[int],
        inputs: list[dict[int, np.ndarray]],
        in_place: bool,
        slice_elements: int,
    ) -> None:
        self.columns = columns
        self.ranges = chunk_ranges(columns["chunks"], block_sizes)
        self.slice_elements = slice_elements
        largest = max((end - begin for begin, end in self.ranges), default=0)
        self.slices = max(1, -(-largest // slice_elements))
        dtype = next(iter(inputs[0].values())).dtype if inputs[0] else np.dtype(np.int64)
        self.slots: list[list[list[np.ndarray]]] = []
        self.outputs: list[dict[int, np.ndarray]] = []  # per rank: chunk -> memory
        for rank in range(columns["ranks"]):
            spaces: list[list[np.ndarray]] = [[], [], []]
            of_input: dict[int, np.ndarray] = {}
            of_output: dict[int, np.ndarray] = {}
            for _, space, chunk in columns["slots"][columns["slots"][:, 0] == rank].tolist():
                begin, end = self.ranges[chunk]
                if space == INPUT:
                    memory = inputs[rank][columns["chunks"][chunk, 0]][begin:end].copy()
                    of_input[chunk] = memory
                elif space == OUTPUT and in_place and chunk in of_input:
                    memory = of_input[chunk]
                else:
                    memory = np.full(end - begin, POISON, dtype)
                if space == OUTPUT:
                    of_output[chunk] = memory
                spaces[space].append(memory)
            self.slots.append(spaces)
            self.outputs.append(of_output)
        self.fifos: dict[tuple[int, int, int], deque[list[np.ndarray]]] = defaultdict(deque)
        self.lanes: list[dict[int, list[tuple[Any, ...]]]] = [defaultdict(list) for _ in range(columns["ranks"])]
        operands, dependencies = columns["operands"].tolist(), columns["dependencies"].tolist()
        next_operand = next_dependency = 0
        for row in columns["instructions"].tolist():
            own_operands = operands[next_operand : next_operand + row[11]]
            own_dependencies = dependencies[next_dependency : next_dependency + row[12]]
            next_operand, next_dependency = next_operand + row[11], next_dependency + row[12]
            self.lanes[row[0]][row[1]].append((*row[2:11], own_operands, own_dependencies, row[13]))
        # Per lane, what it does: (instruction, slice), turn after turn.
        self.work = [{lane: self.turns(lanes[lane]) for lane in lanes} for lanes in self.lanes]
        self.done: list[dict[int, set[tuple[int, int]]]] = [{lane: set() for lane in lanes} for lanes in self.lanes]

    def turns(self, lane: list[tuple[Any, ...]]) -> deque[tuple[int, int]]:
        skews = [row[-1] for row in lane]
        return deque(
            (position, turn - skew)
            for turn in range(self.slices + max(skews))
            for position, skew in enumerate(skews)
            if 0 <= turn - skew < self.slices
        )

    def next(self, rank: int, lane: int) -> tuple[tuple[Any, ...], int] | None:
        """The lane's next instruction and its slice; None when it must wait for another lane, or is at its end."""
        if not self.work[rank][lane]:
            return None
        position, turn = self.work[rank][lane][0]
        row = self.lanes[rank][lane][position]
        if any((instruction, turn) not in self.done[rank][other] for other, instruction in row[-2]):
            return None
        return row, turn

    def finish(self, rank: int, lane: int) -> None:
        self.done[rank][lane].add(self.work[rank][lane].popleft())

    def view(self, rank: int, space: int, index: int, slice_index: int) -> np.ndarray:
        begin = slice_index * self.slice_elements
        return self.slots[rank][space][index][begin : begin + self.slice_elements]

    def step(self, rank: int, lane: int) -> bool:
        """Runs the lane's next instruction; False when it is blocked or at its end."""
        found = self.next(rank, lane)
        if found is None:
            return False
        (opcode, dst_space, dst, src_space, src, count, source, target, channel, operands, _, _), turn = found
        incoming = self.fifos[source, rank, channel]
        if opcode in (RECV, RECV_REDUCE) and not incoming:
            return False

        def written(k: int = 0) -> np.ndarray:
            return self.view(rank, dst_space, dst + k, turn)

        def read(k: int = 0) -> np.ndarray:
            return self.view(rank, src_space, src + k, turn)

        if opcode == SEND:
            fifo = self.fifos[rank, target, channel]
            if len(fifo) >= self.columns["fifo_depth"]:
                return False
            fifo.append([read(k).copy() for k in range(count)])
        elif opcode == COPY:
            written()[:] = read()
        elif opcode == REDUCE:
            total = read().copy()
            for space, index in operands:
                total += self.view(rank, space, index, turn)
            written()[:] = total
        elif opcode in (RECV, RECV_REDUCE):
            for k, message in enumerate(incoming.popleft()):
                written(k)[:] = message + read(k) if opcode == RECV_REDUCE else message
        else:
            assert opcode == NOP, f"opcode {opcode} is not written by the builders"
        self.finish(rank, lane)
        return True

    def run(self, rng: np.random.Generator) -> None:
        """To the end, in a random order. Raises DeadlockError."""
        everyone = [(rank, lane) for rank, lanes in enumerate(self.lanes) for lane in lanes]
        waiting = everyone
        while waiting:
            moved = False
            for index in rng.permutation(len(waiting)).tolist():
                rank, lane = waiting[index]
                for _ in range(int(rng.integers(1, 8))):
                    if not self.step(rank, lane):
                        break
                    moved = True
            waiting = [(r, k) for r, k in waiting if self.work[r][k]]
            if waiting and not moved:
                rank, lane = waiting[0]
                raise DeadlockError(f"{len(waiting)} lanes are stuck, the first is agent {rank}, lane {lane}")
        stray = {link: len(fifo) for link, fifo in self.fifos.items() if fifo}
        assert not stray, f"messages that nobody received: {stray}"


def run(
    columns: dict[str, Any],
    block_sizes: list[int],
    inputs: list[dict[int, np.ndarray]],
    rng: np.random.Generator,
    *,
    in_place: bool = False,
    slice_elements: int = 1 << 30,
) -> list[dict[int, np.ndarray]]:
    """`inputs[rank][block]` -> `outputs[rank][block]`, as the Program moves them."""
    machine = Machine(columns, block_sizes, inputs, in_place, slice_elements)
    machine.run(rng)
    outputs: list[dict[int, np.ndarray]] = []
    for rank in range(columns["ranks"]):
        pieces: dict[int, list[np.ndarray]] = defaultdict(list)
        for chunk, memory in sorted(machine.outputs[rank].items()):
            pieces[int(columns["chunks"][chunk, 0])].append(memory)
        outputs.append({block: np.concatenate(parts) for block, parts in pieces.items()})
    return outputs


def random_inputs(
    columns: dict[str, Any], block_sizes: list[int], rng: np.random.Generator, *, floats: bool = False
) -> list[dict[int, np.ndarray]]:
    """What every rank starts with: small integers (exact sums) or float32 of mixed magnitude (inexact ones)."""

    def values(size: int) -> np.ndarray:
        if floats:
            return (rng.standard_normal(size) * 10.0 ** rng.integers(-4, 5, size)).astype(np.float32)
        return rng.integers(-1000, 1000, size)

    collective, ranks, root = columns["collective"], columns["ranks"], columns["root"]
    return [
        {b: values(n) for b, n in enumerate(block_sizes) if starts(collective, ranks, root, rank, b)}
        for rank in range(ranks)
    ]


def expected_outputs(
    columns: dict[str, Any], block_sizes: list[int], inputs: list[dict[int, np.ndarray]]
) -> list[dict[int, np.ndarray]]:
    """The definition of the collective, block by block (exact for integers)."""
    collective, ranks, root = columns["collective"], columns["ranks"], columns["root"]
    return [
        {
            block: np.sum([held[block] for held in inputs if block in held], axis=0)
            for block in range(len(block_sizes))
            if ends(collective, ranks, root, rank, block)
        }
        for rank in range(ranks)
    ]

"""Programs that nobody would write, run by the real executor: whatever `validate` lets pass stays in its own memory.

Right Programs with some numbers changed. Those that the core accepts run on forked ranks over shared memory; they may
give anything, fail or wait in vain, and must neither crash nor touch a byte that is not theirs. Every block lies
between bytes that are looked at afterwards and a page that nobody may touch.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import random

import numpy as np
import pytest

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, ends, starts
from tests.csrc.runtime.cases import ALGORITHMS, COLLECTIVES, ROOTED
from tests.csrc.runtime.group import Bytes, Group
from tests.csrc.runtime.harness import Rank, run_as_processes
from tests.csrc.runtime.programs.test_programs import Columns, fused_ring, random_program

TABLES = ("chunks", "slots", "instructions", "operands", "dependencies")
EDGES = (-1, 0, 1, 2, 3, 7, 2**16 - 1, 2**31 - 1)
CANARY = 0xA5
PATIENCE = 0.1  # seconds: many mutants wait for what nobody sends
DTYPES = ("uint8", "float32", "float64")

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A Program that the core accepts, and a call of it."""

    columns: Columns
    sizes: tuple[int, ...]  # elements of each block
    dtype: str
    in_place: bool


class Guarded:
    """Memory that ends at a page which nobody may touch, behind bytes that nobody may change."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._all = mmap.mmap(-1, (size + 2 * page - 1) // page * page + page)
        whole = np.frombuffer(self._all, np.uint8)
        end = len(whole) - page
        assert _mprotect(whole.ctypes.data + end, page, 0) == 0
        whole[:end] = CANARY
        self.before, self.bytes = whole[: end - size], whole[end - size : end]

    def untouched(self) -> bool:
        return bool((self.before == CANARY).all())


# ---- mutants --------------------------------------------------------------------------------------------------------


def original(rng: np.random.Generator, ranks: int) -> Columns:
    """A right Program: of a builder, random, or with fused instructions."""
    kind = rng.integers(4)
    if kind == 0:
        return random_program(rng, ranks)
    if kind == 1:
        return fused_ring(rng, ranks)
    collective = str(rng.choice(COLLECTIVES))
    names = [name for name in ALGORITHMS[collective] if name != "auto"]
    root = int(rng.integers(ranks)) if collective in ROOTED else 0
    return dict(_core.build(str(rng.choice(names)), collective, ranks, root).columns())


def change(columns: Columns, rng: np.random.Generator) -> None:
    """One number becomes another: that of another row, its neighbour, or an edge. Sometimes a row goes, or a scalar."""
    kind = rng.integers(10)
    if kind == 0:
        name = str(rng.choice(["root", "fifo_depth", "out_of_place", "in_place", "collective"]))
        values = {"root": int(rng.integers(-1, 4)), "fifo_depth": int(rng.integers(5))}
        values["collective"] = rng.choice(COLLECTIVES)
        columns[name] = values.get(name, bool(rng.integers(2)))
        return
    name = str(rng.choice(TABLES, p=[0.1, 0.3, 0.4, 0.1, 0.1]))
    table = columns[name]
    if not len(table):
        return
    row, column = rng.integers(len(table)), rng.integers(table.shape[1])
    if kind == 1 and name == "slots":
        columns[name] = np.delete(table, row, axis=0)
    elif kind == 2:
        table[row, column] = rng.choice(EDGES)
    elif kind == 3:
        table[row, column] = np.clip(int(table[row, column]) + int(rng.choice([-1, 1])), -(2**31), 2**31 - 1)
    elif kind == 4:
        table[row] = table[rng.integers(len(table))]
    else:
        table[row, column] = table[rng.integers(len(table)), column]


def mutant(rng: np.random.Generator, ranks: int) -> Mutant:
    """The first that the core accepts."""
    while True:
        columns = original(rng, ranks)
        columns = {key: np.array(value) if key in TABLES else value for key, value in columns.items()}
        for _ in range(rng.integers(1, 4)):
            change(columns, rng)
        try:
            program = _core.Program(**columns)
        except (ValueError, TypeError):
            continue
        if program.one_sided:
            continue
        even = rng.random() < 0.5
        most = int(rng.choice([3, 40, 3000]))
        blocks = blocks_of(columns["collective"], ranks)
        sizes = [most] * blocks if even else [int(size) for size in rng.integers(0, most, blocks)]
        return Mutant(columns, tuple(sizes), str(rng.choice(DTYPES)), bool(rng.integers(2)))


# ---- ranks ----------------------------------------------------------------------------------------------------------


def execute(rank: Rank, mutants: list[Mutant]) -> int:
    """Runs them all, in a new group after each that failed anywhere; how many ran to their end here."""
    done = 0
    group = rank.join()
    for number, one in enumerate(mutants):
        print(f"mutant {number}", flush=True)  # the last line of a rank that crashed
        ended = attempt(group, one)
        done += ended
        if b"failed" in rank.all_say("outcome", b"ended" if ended else b"failed"):
            group = rank.join()
    return done


def attempt(group: Group, one: Mutant) -> bool:
    """Whether it ran to its end."""
    columns = one.columns
    collective, root = columns["collective"], columns["root"]
    width = np.dtype(one.dtype).itemsize
    inputs: dict[int, Guarded] = {}
    outputs: dict[int, Guarded] = {}
    for block, size in enumerate(one.sizes):
        if starts(collective, group.size, root, group.rank, block):
            inputs[block] = Guarded(size * width)
        if ends(collective, group.size, root, group.rank, block):
            outputs[block] = inputs[block] if one.in_place and block in inputs else Guarded(size * width)
    given = {block: memory.bytes.tobytes() for block, memory in inputs.items() if memory is not outputs.get(block)}

    try:
        group.raw.add_program("mutant", _core.Program(**columns))
        views: list[dict[int, Bytes]] = [{b: memory.bytes for b, memory in part.items()} for part in (inputs, outputs)]
        even = len(set(one.sizes)) == 1
        options = {"root": root, "algorithm": "mutant", "even": even, "timeout": PATIENCE}
        group.run(collective, one.dtype, one.sizes, views[0], views[1], **options)
        ended = True
    except (_core.CommunicationError, ValueError, RuntimeError):
        ended = False
    for memory in (*inputs.values(), *outputs.values()):
        assert memory.untouched(), "bytes before a block were written"
    for block, bytes_ in given.items():
        assert inputs[block].bytes.tobytes() == bytes_, f"the input of block {block} was written"
    return ended


def attack(ranks: int, count: int, seed: int, deadline: float) -> None:
    print(f"{count} mutants on {ranks} ranks, seed {seed}")
    rng = np.random.default_rng(seed)
    mutants = [mutant(rng, ranks) for _ in range(count)]
    ended = run_as_processes(execute, ranks, mutants, environment={"SYNTONY_SLOT_BYTES": "4096"}, deadline=deadline)
    print(f"ran to their end: {ended}")
    assert min(ended) > 0, "nothing that was tried runs at all"


@pytest.mark.parametrize(("ranks", "count"), [(2, 150), (3, 100)])
def test_mutants_stay_in_their_memory(ranks: int, count: int) -> None:
    attack(ranks, count, random.SystemRandom().randrange(1 << 32), 120)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(10))
def test_many_mutants_stay_in_their_memory(turn: int) -> None:
    attack(2 + turn % 3, 5000, random.SystemRandom().randrange(1 << 32), 1200)

"""Ranks that do not call the same: every call, and all that ranks can disagree in.

Rank 1 calls something else than the others. Every cell of the matrix ends in one sentence on every rank that names both
sides and what differs, and no byte comes out that nobody sent; or the difference is no disagreement (in place or not,
waiting or not, another weight), and all results are right. Counts of single ranks are the subject of test_counts.py.

A sample of the matrix in every run, all of it with `-m sweep` (make test-all). How long ranks took from their call to
the sentence is printed, and asserted nowhere.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, ends, starts
from tests.csrc.runtime.cases import ALGORITHMS, COLLECTIVES, REDUCING, ROOTED
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Rank, run_as_processes

RANKS = 3
HOSTS = ("", "abc", "aab")
LATE = "has not started it"  # what is said at the time-out
PATIENCE = 1.0  # seconds: the time-out where nobody can know before it
PROMISE = 20.0  # seconds until the sentence: less than the usual time-out, which would end a wait as well
CANARY, FOREIGN = 0xA5, 0xEE
GUARD = 4096  # bytes behind every input that nobody may hand out
SIZES = {"small": 1000, "large": 1_000_000}  # elements of a block
SAMPLE = 24  # cells of every run, for each way to spread ranks over hosts


@dataclasses.dataclass(frozen=True)
class Call:
    """What one rank calls."""

    collective: str
    count: int
    dtype: str = "uint8"
    op: str = "sum"
    root: int = 0
    algorithm: str = "auto"
    even: bool = True
    average: bool = False
    in_place: bool = False
    asynchronous: bool = False
    factor: float = 1.0
    partition: int = 0
    priority: str | None = None


@dataclasses.dataclass(frozen=True)
class Cell:
    """`differs`: what the sentence says; empty where the difference is none."""

    what: str
    usual: Call
    other: Call
    differs: str = ""

    @property
    def late(self) -> bool:
        """Operations of another group, or of a priority that the caller chose, have an order of their own: that they
        are missing here is known at the time-out only."""
        return self.differs == LATE

    def __str__(self) -> str:
        return f"{self.usual.collective}, {self.usual.count} elements a block, rank 1 differs in {self.what}"


def cells() -> Iterator[Cell]:
    for collective, count in itertools.product(COLLECTIVES, SIZES.values()):
        usual = Call(collective, count, algorithm="direct" if collective == "all_to_all" else "auto")

        def cell(what: str, differs: str, usual: Call = usual, **fields: Any) -> Cell:
            return Cell(what, usual, dataclasses.replace(usual, **fields), differs)

        yield cell("count", "element count", count=count + 1)
        yield cell("count, none", "element count", count=0)
        yield cell("count, half", "element count", count=count // 2)
        yield cell("dtype, of one size", "dtype", dtype="int8")
        yield cell("dtype, of another size", "dtype", dtype="int32")
        yield cell("dtype and count, of as many bytes", "dtype", dtype="uint16", count=count // 2)
        for other in (*COLLECTIVES, "barrier"):
            if other != collective:
                yield cell(f"the collective: {other}", "operation", collective=other, algorithm="auto")
        names = [name for name in ALGORITHMS[collective] if name not in ("auto", "hierarchical")]
        for first, second in itertools.pairwise([*names, names[0]] if len(names) > 1 else []):
            agreed = dataclasses.replace(usual, algorithm=first)
            yield cell(f"algorithm: {first}, {second}", "the algorithm", agreed, algorithm=second)
            yield cell(f"count, none, by {first}", "element count", agreed, count=0)
        yield cell("priority", LATE, priority="high")
        yield cell("partition", "element count", partition=max(1, count // 3))
        if blocks_of(collective, RANKS) > 1 and collective != "all_to_all":
            yield cell("evenness", "element counts", even=False)
        if collective in ROOTED:
            yield cell("root", "root", root=1)
            yield cell("root, of nobody's own", "root", root=2)
        if collective in REDUCING:
            yield cell("op", "reduction", op="max")
            yield cell("op, of two", "reduction", dataclasses.replace(usual, op="band"), op="bor")
            yield cell("average", "reduction", average=True)
            floats = dataclasses.replace(usual, dtype="float32")
            yield cell("nothing: a weight", "", floats, factor=2.0)
        yield cell("nothing: in place", "", in_place=True)
        yield cell("nothing: waiting", "", asynchronous=True)
        yield cell("group", LATE)


# ---- ranks ----------------------------------------------------------------------------------------------------------


class Buffers:
    """What a rank brings to a call: bytes of its number + 1, or floats; and what it should get."""

    def __init__(self, call: Call, rank: int) -> None:
        self.call, self.rank = call, rank
        self.inputs: dict[int, np.ndarray] = {}
        self.outputs: dict[int, np.ndarray] = {}
        self.sizes = [call.count] * blocks_of(call.collective, RANKS)
        for block in range(len(self.sizes)):
            if starts(call.collective, RANKS, call.root, rank, block):
                self.inputs[block] = self._guarded(FOREIGN)
                self.inputs[block].view(call.dtype)[:] = rank + 1
            if ends(call.collective, RANKS, call.root, rank, block):
                in_place = call.in_place and block in self.inputs
                self.outputs[block] = self.inputs[block] if in_place else self._guarded(CANARY)

    def _guarded(self, value: int) -> np.ndarray:
        size = self.call.count * np.dtype(self.call.dtype).itemsize
        return np.full(size + GUARD, value, np.uint8)[:size]

    def expected(self, block: int, weights: Sequence[float]) -> float:
        """Each element of an output, where all ranks call as this one does."""
        terms = [(rank + 1) * weights[rank] for rank in range(RANKS)]
        values = list(range(1, RANKS + 1))
        if self.call.collective in REDUCING:
            whole = {"sum": sum(terms), "max": max(values), "band": 1 & 2 & 3, "bor": 1 | 2 | 3}[self.call.op]
            return whole // RANKS if self.call.average else whole
        root = self.call.root
        source = {"scatter": root, "broadcast": root, "all_to_all": block // RANKS}.get(self.call.collective, block)
        return source + 1

    def wrong(self, weights: Sequence[float]) -> int:
        """Elements that are not what this rank asked for."""
        found = 0
        for block, output in self.outputs.items():
            found += int((output.view(self.call.dtype) != self.expected(block, weights)).sum())
        return found

    def foreign(self) -> int:
        """Bytes in the outputs that lie behind somebody's input."""
        return sum(int((output == FOREIGN).sum()) for output in self.outputs.values())

    def run(self, group: Group) -> None:
        call = self.call
        options: dict[str, Any] = {"partition": call.partition, "priority": call.priority}
        work = group.run(
            call.collective,
            call.dtype,
            self.sizes,
            self.inputs,
            self.outputs,
            op=call.op,
            root=call.root,
            algorithm=call.algorithm,
            even=call.even,
            average=call.average,
            factor=call.factor,
            async_op=call.asynchronous,
            **options,
        )
        if call.asynchronous:
            work.wait()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of a cell on one rank. `returned`: the call itself was over before anybody knew."""

    kind: str
    guilty: tuple[int, ...]
    sentence: str
    took: float  # seconds
    returned: bool
    wrong: int  # of a call that returned
    foreign: int


def disagree(rank: Rank, chosen: list[Cell]) -> list[Outcome]:
    """Each cell in a group of its own."""
    return [outcome_of(rank, f"{number}", cell) for number, cell in enumerate(chosen)]


def outcome_of(rank: Rank, name: str, cell: Cell) -> Outcome:
    print(f"cell {name}: {cell}", flush=True)
    group = rank.join(name=name, timeout=PATIENCE if cell.late else 30.0)
    elsewhere = rank.join(name=f"{name} too", timeout=PATIENCE) if cell.what == "group" else group
    here = elsewhere if rank.rank == 1 else group
    call = cell.other if rank.rank == 1 else cell.usual
    buffers = Buffers(call, rank.rank) if call.collective != "barrier" else None
    returned = False

    def until_it_shows() -> None:
        nonlocal returned
        if buffers is None:
            here.barrier()
        else:
            buffers.run(here)
        returned = True
        if cell.differs:
            for _ in range(1000):  # a rank whose own part is over learns of it in its next operation
                here.barrier()
        here.barrier()

    group.barrier()
    rank.meet(f"ready {name}")
    kind, guilty, sentence, began = "", (), "", time.monotonic()
    try:
        until_it_shows()
    except _core.CommunicationError as error:
        kind, guilty, sentence = error.kind, error.ranks, str(error)
    took = time.monotonic() - began
    weights = [cell.other.factor if other == 1 else cell.usual.factor for other in range(RANKS)]
    wrong = buffers.wrong(weights) if buffers is not None and returned else 0
    foreign = buffers.foreign() if buffers is not None else 0
    rank.meet(f"over {name}")
    for joined in {id(group): group, id(elsewhere): elsewhere}.values():
        joined.shutdown()
    return Outcome(kind, guilty, sentence, took, returned, wrong, foreign)


# ---- the matrix -----------------------------------------------------------------------------------------------------


def faults_of(cell: Cell, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What is not as promised."""
    for rank, outcome in enumerate(outcomes):
        where = f"{cell}: rank {rank}: {outcome.sentence!r}"
        if outcome.foreign:
            yield f"{where}: {outcome.foreign} bytes that nobody sent"
        if outcome.wrong:
            yield f"{where}: the call returned with {outcome.wrong} wrong elements"
        if not cell.differs:
            if outcome.sentence:
                yield where
            continue
        if not outcome.sentence:
            yield f"{where}: nobody was told"
            continue
        if outcome.took > PROMISE:
            yield f"{where}: after {outcome.took:.1f} s"
        if cell.late and outcome.kind == "timeout":  # who is told depends on whose operation ended first
            if LATE not in outcome.sentence or (1 not in outcome.guilty and set(outcome.guilty) != {0, 2}):
                yield f"{where}: {outcome.kind} of {outcome.guilty}"
            continue
        if not cell.late and cell.differs not in outcome.sentence:
            yield f"{where}: does not say {cell.differs!r}"
        if outcome.kind != "mismatch" or 1 not in outcome.guilty or len(outcome.guilty) != 2:
            yield f"{where}: {outcome.kind} of {outcome.guilty}"
        if not all(f"rank {guilty}" in outcome.sentence for guilty in outcome.guilty):
            yield f"{where}: does not name {outcome.guilty}"


def try_all(chosen: list[Cell], hosts: str, deadline: float) -> str:
    """How long it took."""
    results = run_as_processes(disagree, RANKS, chosen, hosts=hosts, deadline=deadline)
    by_cell = list(zip(chosen, zip(*results, strict=True), strict=True))
    faults = [fault for cell, outcomes in by_cell for fault in faults_of(cell, outcomes)]
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults)
    known = [o.took * 1e3 for cell, outcomes in by_cell if cell.differs and not cell.late for o in outcomes]
    return (
        f"hosts {hosts or 'aaa'}: {len(chosen)} cells; from the call to the sentence: median "
        f"{statistics.median(known):.1f} ms, 99 % within {np.quantile(known, 0.99):.1f} ms, at most {max(known):.1f} ms"
    )


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_sample_of_disagreements(hosts: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    at_once = [cell for cell in cells() if not cell.late]
    print(try_all(random.Random(seed).sample(at_once, SAMPLE), hosts, 280.0))


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hosts", HOSTS)
def test_every_disagreement(hosts: str, capsys: pytest.CaptureFixture[str]) -> None:
    took = try_all(list(cells()), hosts, 600.0)
    with capsys.disabled():
        print("\n" + took)

"""Ranks that disagree about how many elements each of them has: a named error on every rank, and no byte that nobody
sent. Rank 1 believes in other counts than the others; what lies behind everybody's input may not come out anywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from tests.csrc.program_interpreter import ends, starts
from tests.csrc.runtime.cases import REDUCING
from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import Rank, run_as_processes

RANKS = 3
PROMISE = 20.0  # seconds: far less than the time-out, far more than it takes
CANARY, FOREIGN = 0xA5, 0xEE
GUARD = 4096
COMMON = ("all_gather", "reduce_scatter", "gather", "scatter")  # every rank gives the counts of all
SIZES = {"small": (1500, 1000), "large": (1_600_000, 1_000_000)}  # bytes
DTYPE = "uint8"
Counts = list[int]
Cell = tuple[str, str, str]  # collective, what differs, size

# What rank 1 says in place of [usual, other, usual].
OF_RANK_1: dict[str, Callable[[int, int], Counts]] = {
    "less": lambda usual, other: [usual, other // 2, usual],
    "more": lambda usual, other: [usual, usual, usual],
    "nothing": lambda usual, other: [usual, 0, usual],
    "about another": lambda usual, other: [usual, other, other],
    "the same sum": lambda usual, other: [other, usual, usual],
}
# What rank 1 sends to rank 0, and what rank 0 expects; all else is `usual`.
OF_A_PAIR: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "less": lambda usual, other: (other, usual),
    "more": lambda usual, other: (usual, other),
    "nothing sent": lambda usual, other: (0, usual),
    "nothing expected": lambda usual, other: (usual, 0),
    "one more": lambda usual, other: (usual + 1, usual),
}


def cells() -> Iterator[Cell]:
    yield from itertools.product(COMMON, OF_RANK_1, SIZES)
    yield from itertools.product(["all_to_all"], OF_A_PAIR, SIZES)


def counts_of(rank: int, cell: Cell) -> Counts:
    """Of every block, as `rank` sees it."""
    collective, what, size = cell
    usual, other = SIZES[size]
    if collective in COMMON:
        return OF_RANK_1[what](usual, other) if rank == 1 else [usual, other, usual]
    sent, expected = OF_A_PAIR[what](usual, other)
    counts = [usual] * RANKS**2
    counts[1 * RANKS + 0] = sent if rank == 1 else expected
    return counts


def disagree(rank: Rank, algorithm: str) -> list[tuple[str, tuple[int, ...], str, float, set[int]]]:
    """Each cell in a group of its own: kind, guilty ranks, sentence, seconds, and wrong bytes in the outputs."""
    return [in_a_group(rank, str(number), cell, algorithm) for number, cell in enumerate(cells())]


def in_a_group(rank: Rank, name: str, cell: Cell, algorithm: str) -> tuple[str, tuple[int, ...], str, float, set[int]]:
    collective, counts = cell[0], counts_of(rank.rank, cell)
    group = rank.join(name=name)
    inputs, outputs = {}, {}
    for block, count in enumerate(counts):
        if starts(collective, RANKS, 0, rank.rank, block):
            memory = np.full(count + GUARD, FOREIGN, np.uint8)
            memory[:count] = rank.rank + 1
            inputs[block] = memory[:count]
        if ends(collective, RANKS, 0, rank.rank, block):
            outputs[block] = np.full(count, CANARY, np.uint8)

    def until_it_shows() -> None:
        group.run(collective, DTYPE, counts, inputs, outputs, even=False, algorithm=algorithm)
        for _ in range(1000):  # a rank whose own part is over learns of it in its next operation
            group.barrier()

    rank.meet(f"ready {name}")
    failure = failure_of(until_it_shows)
    wrong = set()
    for block, output in outputs.items():
        wrong |= set(np.unique(output).tolist()) - {CANARY, *values_of(collective, block)}
    rank.meet(f"over {name}")
    group.shutdown()
    return *failure, wrong


def values_of(collective: str, block: int) -> Sequence[int]:
    if collective in REDUCING:
        return [1 + 2 + 3]
    source = {"scatter": 0, "all_to_all": block // RANKS}.get(collective, block)
    return [source + 1]


@pytest.mark.parametrize(
    ("hosts", "algorithm"), [("", "auto"), ("", "direct"), ("aab", "auto"), ("abc", "direct")], ids=str
)
def test_counts_that_differ_are_named_and_nothing_foreign_comes_out(hosts: str, algorithm: str) -> None:
    results = run_as_processes(disagree, RANKS, algorithm, hosts=hosts, deadline=240.0)
    for number, cell in enumerate(cells()):
        for kind, guilty, sentence, took, wrong in (result[number] for result in results):
            where = f"{cell}: {sentence}"
            assert kind == "mismatch", where
            assert 1 in guilty, where
            assert len(guilty) == 2, where
            assert "disagree" in sentence, where
            assert "rank 1" in sentence, where
            assert cell[0] in sentence, where
            assert "element count" in sentence, where
            assert took < PROMISE, where
            assert not wrong, f"{where}: {wrong}"
        if cell[0] == "all_to_all":
            sent, expected = OF_A_PAIR[cell[1]](*SIZES[cell[2]])
            for result in results:
                assert f"expects {expected} elements of rank 1" in result[number][2], result[number][2]
                assert f"which sends {sent}" in result[number][2], result[number][2]


def parted(rank: Rank) -> tuple[str, tuple[int, ...], str, float]:
    """The first parts of what is called are alike, their number is not."""
    group = rank.join()
    count = 2000 if rank.rank == 1 else 3000
    rank.meet("joined")
    return failure_of(lambda: group.all_reduce(np.zeros(count, np.uint8), partition=1000))


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_parts_of_calls_that_differ_are_told(hosts: str) -> None:
    for kind, guilty, sentence, _ in run_as_processes(parted, 2, hosts=hosts):
        assert kind == "mismatch", sentence
        assert set(guilty) == {0, 1}, sentence
        assert "element counts" in sentence, sentence

"""Ranks that do not call the same: both sides get one sentence that names them and what differs, and nobody hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.csrc.runtime.group import Group, failure_of
from tests.csrc.runtime.harness import Rank, run_as_processes

HOSTS = pytest.mark.parametrize("hosts", ["", "aabb", "abcd"])
PROMISE = 20.0  # seconds until the exceptions: less than the time-out, which would end a wait as well
Failure = tuple[str, tuple[int, ...], str, float]


def calls_of(what: str) -> tuple[Callable[[Group], Any], Callable[[Group], Any], str]:
    """What most ranks call, what rank 1 calls, and what the sentence must say."""

    def reduce(count: int = 100, dtype: str = "float32", **options: Any) -> Callable[[Group], Any]:
        return lambda group: group.all_reduce(np.zeros(count, dtype), **options)

    def broadcast(root: int) -> Callable[[Group], Any]:
        return lambda group: group.broadcast(np.zeros(100, np.float32), root)

    return {
        "count": (reduce(100), reduce(200), "element count"),
        "large count": (reduce(1_000_000), reduce(1_000_001), "element count"),
        "empty": (reduce(100), reduce(0), "element count"),
        "dtype": (reduce(), reduce(dtype="int32"), "dtype"),
        "op": (reduce(), reduce(op="max"), "reduction"),
        "root": (broadcast(0), broadcast(1), "root"),
        "collective": (reduce(), broadcast(0), "operation"),
        "barrier": (reduce(), lambda group: group.barrier(), "operation"),
        "algorithm": (reduce(algorithm="ring"), reduce(algorithm="dbt"), "the algorithm (its Program)"),
    }[what]


WHATS = ("count", "large count", "empty", "dtype", "op", "root", "collective", "barrier", "algorithm")


def disagree(rank: Rank) -> list[Failure]:
    """One group after another, each ended by another disagreement."""
    failures = []
    for what in WHATS:
        group = rank.join(name=what)
        usual, other, _ = calls_of(what)

        def until_it_shows(
            group: Group = group, call: Callable[[Group], Any] = other if rank.rank == 1 else usual
        ) -> None:
            group.barrier()
            call(group)
            for _ in range(1000):  # a rank whose own part is over learns of it in its next operation
                group.barrier()

        failures.append(failure_of(until_it_shows))
        rank.meet(what)
        group.shutdown()
    return failures


@pytest.mark.parametrize("hosts", ["", "aab", "abc"])
def test_a_disagreement_names_both_sides_and_what_differs(hosts: str) -> None:
    results = run_as_processes(disagree, 3, hosts=hosts)
    for number, what in enumerate(WHATS):
        *_, difference = calls_of(what)
        for failures in results:
            kind, guilty, sentence, _ = failures[number]
            assert kind == "mismatch", sentence
            assert 1 in guilty, sentence
            assert len(guilty) == 2, sentence
            assert "disagree" in sentence, sentence
            assert "rank 1" in sentence, sentence
            assert difference in sentence, sentence


def uneven_disagreement(rank: Rank) -> Failure:
    group = rank.join()
    rank.meet("joined")  # else who is late hears of it in there
    sizes = [5, 7, 9]
    if rank.rank == 1:
        sizes = [5, 8, 9]  # says that it brings one more than the others believe
    own = {rank.rank: np.zeros(sizes[rank.rank], np.uint8)}
    outputs = {block: np.zeros(size, np.uint8) for block, size in enumerate(sizes)}

    def gather() -> None:
        group.run("all_gather", "uint8", sizes, own, outputs, even=False, algorithm="direct")
        for _ in range(1000):
            group.barrier()

    failure = failure_of(gather)
    rank.meet("end")
    return failure


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_block_sizes_that_differ_are_told(hosts: str) -> None:
    for kind, guilty, sentence, _ in run_as_processes(uneven_disagreement, 3, hosts=hosts):
        assert kind == "mismatch", sentence
        assert 1 in guilty
        assert "element count 22 against 21" in sentence or "element count 21 against 22" in sentence, sentence

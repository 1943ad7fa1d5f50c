"""Trees of aggregators, and packets that get lost: the same bits, and every end is named everywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from tests.csrc.aggregator.lossy import lossy
from tests.csrc.aggregator.serving import Array, Job, aggregator, everybody
from tests.csrc.aggregator.test_sums import in_rank_order, numbers
from tests.sampled import examples


@contextmanager
def tree(groups: list[int], loss: float = 0.0, **options: Any) -> Iterator[list[str]]:
    """The ways of ranks that go, group by group, through an aggregator of their own to one root."""
    with ExitStack() as stack:

        def one() -> str:
            address = stack.enter_context(aggregator(**options))
            return stack.enter_context(lossy(address, loss)) if loss else address

        root = one()
        leaves = [one() for _ in groups]
        yield [f"{leaf},{root}" for leaf, size in zip(leaves, groups, strict=True) for _ in range(size)]


def by_groups(sources: list[Array], groups: list[int]) -> Array:
    """The groups' sums, added in their order."""
    ends = np.cumsum(groups)
    return in_rank_order([in_rank_order(sources[end - size : end]) for end, size in zip(ends, groups, strict=True)])


@examples(20)
@given(
    groups=st.lists(st.integers(2, 3), min_size=2, max_size=3),
    elements=st.integers(1, 2000),
    slots=st.integers(2, 8),
    number_format=st.sampled_from(["float32", "int32_block"]),
)
def test_sums_are_added_group_by_group(groups: list[int], elements: int, slots: int, number_format: str) -> None:
    sources = numbers(sum(groups), elements, seed=elements)
    with tree(groups, slots=slots, slot_bytes=256) as ways:
        results = Job(ways, len(ways)).all_reduce(sources, number_format)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
        if number_format == "float32":
            np.testing.assert_array_equal(result, by_groups(sources, groups))
        else:
            np.testing.assert_allclose(result, by_groups(sources, groups), atol=1e-5)


def test_an_aggregator_adds_ranks_and_the_sums_of_others() -> None:
    sources = numbers(4, 5000)
    with aggregator() as root, aggregator() as leaf:
        ways = [root, f"{leaf},{root}", f"{leaf},{root}", root]
        for result in Job(ways, 4).all_reduce(sources):
            expected = (sources[0] + (sources[1] + sources[2])) + sources[3]
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("loss", [0.01, 0.1])
@pytest.mark.parametrize("number_format", ["float32", "int32_block"])
def test_lost_packets_change_nothing(loss: float, number_format: str) -> None:
    """Every packet, up or down, at either level, may get lost."""
    groups = [2, 2]
    sources = numbers(4, 20_000)
    with tree(groups, slots=32, slot_bytes=1024) as ways:
        clean = Job(ways, 4).all_reduce(sources, number_format)
    with tree(groups, loss, slots=32, slot_bytes=1024) as ways:
        job = Job(ways, 4)

        def work(rank: int) -> tuple[Array, Array, int]:
            client = job.join(rank)
            first, second = (job.reduce(client, sources[rank], number_format) for _ in range(2))
            resent = client.resent
            client.close()
            return first, second, resent

        results = everybody(4, work)
    for first, second, _ in results:
        np.testing.assert_array_equal(first, clean[0])
        np.testing.assert_array_equal(second, clean[0])
    assert sum(resent for _, _, resent in results) > 0


def test_ways_that_do_not_meet_are_refused() -> None:
    with aggregator() as one, aggregator() as other:
        for result in Job([one, other], 2).all_reduce(numbers(2, 10)):
            assert isinstance(result, ValueError)
            assert "the ranks' ways to aggregators do not end in one root: 1 of 2 end in" in str(result)


def test_a_rank_that_dies_is_named_at_all_leaves() -> None:
    with tree([2, 2]) as ways:
        job = Job(ways, 4)

        def work(rank: int) -> Any:
            client = job.join(rank)
            if rank == 3:
                time.sleep(0.2)
                client.close()
                return None
            return job.reduce(client, numbers(1, 1000)[0])

        for error in everybody(4, work)[:3]:
            assert isinstance(error, _core.CommunicationError)
            assert (error.kind, error.ranks) == ("dead", (3,))
            assert "rank 3 left the job before operation 1" in str(error)


@pytest.mark.parametrize("victim", ["leaf", "root"])
def test_an_aggregator_that_dies_is_named_by_all(victim: str) -> None:
    with ExitStack() as lives, ExitStack() as dies:
        root = (dies if victim == "root" else lives).enter_context(aggregator())
        leaf = (dies if victim == "leaf" else lives).enter_context(aggregator())
        other = lives.enter_context(aggregator())
        job = Job([f"{leaf},{root}"] * 2 + [f"{other},{root}"] * 2, 4)
        told = threading.Semaphore(0)

        def work(rank: int) -> Any:
            client = job.join(rank)
            if rank == 3:
                time.sleep(0.3)
                dies.close()
                for _ in range(3):  # the leaf's sum may be at the root: with the last summand its result is complete
                    assert told.acquire(timeout=20)
            try:
                return job.reduce(client, numbers(1, 1000)[0])
            finally:
                told.release()

        gone = leaf if victim == "leaf" else root
        for error in everybody(4, work):
            assert isinstance(error, _core.CommunicationError)
            assert error.kind == "dead"
            assert f"the aggregator at {gone} is gone" in str(error)


def test_who_is_late_is_named_through_the_root() -> None:
    with tree([2, 2]) as ways:
        job = Job(ways, 4)

        def work(rank: int) -> Any:
            client = job.join(rank)
            if rank == 2:
                time.sleep(1.5)
                return None
            return job.reduce(client, numbers(1, 1000)[0], timeout=0.3)

        errors = [error for rank, error in enumerate(everybody(4, work)) if rank != 2]
        for error in errors:
            assert isinstance(error, _core.CommunicationError)
            assert error.kind == "timeout"
            assert "rank 2" in str(error)

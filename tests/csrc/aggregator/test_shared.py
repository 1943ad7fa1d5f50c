"""Slots that all jobs share, first come, first served, below a server that adds what found none: the same bits."""

from __future__ import annotations

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
from tests.csrc.aggregator.serving import AGAIN, HELD, WELCOME, Array, Job, Wire, aggregator, everybody
from tests.csrc.aggregator.test_sums import in_rank_order, numbers
from tests.csrc.aggregator.test_trees import by_groups
from tests.sampled import examples


@contextmanager
def shared(
    groups: list[int], slots: int, loss: float = 0.0, levels: int = 1, tenants: int = 4, server_slots: int = 256
) -> Iterator[list[str]]:
    """The ways of ranks through switches of `slots` shared slots, one for each group (and, of two levels, one above
    them), to a server."""
    with ExitStack() as stack:

        def one(**options: Any) -> str:
            address = stack.enter_context(aggregator(slot_bytes=256, tenants=tenants, **options))
            return stack.enter_context(lossy(address, loss)) if loss else address

        above = one(slots=server_slots)
        if levels == 2:
            above = f"{one(slots=slots, shared=True)},{above}"
        leaves = [one(slots=slots, shared=True) for _ in groups]
        yield [f"{leaf},{above}" for leaf, size in zip(leaves, groups, strict=True) for _ in range(size)]


def several(ways: list[str], sources: list[list[Array]], number_format: str = "") -> list[list[Any]]:
    """The results, by job and rank, of jobs that run at once; two operations each."""
    ranks = len(ways)
    jobs = [Job(ways, ranks) for _ in sources]

    def work(number: int) -> list[Array]:
        job, rank = divmod(number, ranks)
        client = jobs[job].join(rank)
        try:
            return [jobs[job].reduce(client, sources[job][rank], number_format) for _ in range(2)]
        finally:
            client.close()

    results = everybody(ranks * len(jobs), work)
    return [results[job * ranks : (job + 1) * ranks] for job in range(len(jobs))]


@examples(12)
@given(
    groups=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    jobs=st.integers(1, 3),
    elements=st.integers(1, 3000),
    slots=st.integers(8, 20),
    levels=st.integers(1, 2),
    number_format=st.sampled_from(["float32", "int32_block"]),
)
def test_whoever_adds_it_the_sum_has_the_same_bits(
    groups: list[int], jobs: int, elements: int, slots: int, levels: int, number_format: str
) -> None:
    """Few slots, so that jobs are in each other's way, and a job in its own."""
    sources = [numbers(sum(groups), elements, seed=elements + job) for job in range(jobs)]
    with shared(groups, slots, levels=levels) as ways:
        for mine, results in zip(sources, several(ways, sources, number_format), strict=True):
            for result in results:
                for sums in result:
                    np.testing.assert_array_equal(sums, results[0][0])
                    if number_format == "float32":
                        np.testing.assert_array_equal(sums, by_groups(mine, groups))
                    else:
                        np.testing.assert_allclose(sums, by_groups(mine, groups), atol=1e-5)


@pytest.mark.parametrize("levels", [1, 2])
def test_lost_packets_change_nothing(levels: int) -> None:
    groups = [2, 2]
    sources = [numbers(4, 20_000, seed=job) for job in range(2)]
    with shared(groups, 64, loss=0.02, levels=levels) as ways:
        for mine, results in zip(sources, several(ways, sources), strict=True):
            for result in results:
                for sums in result:
                    np.testing.assert_array_equal(sums, by_groups(mine, groups))


def test_a_server_is_needed() -> None:
    with aggregator(shared=True) as address:
        for error in Job(address, 2).all_reduce(numbers(2, 10)):
            assert isinstance(error, ValueError)
            assert "shares its slots, and so needs a server above it" in str(error)


def test_parts_that_were_passed_on_are_added_as_the_one_who_passed_them_would_have() -> None:
    """By hand: a switch of three ranks of which one never comes to its slot."""
    with aggregator(slots=8, slot_bytes=256) as server, aggregator(slots=8, slot_bytes=256, shared=True) as switch:
        job = Job([f"{switch},{server}"] * 2, 2)
        wire = Wire(job, 0, above=f"{server} 2")
        other = Wire(job, 1, above=f"{server} 2")
        assert wire.receive()[0] == other.receive()[0] == WELCOME
        wire.send_packet(wire.part(0, 4, 4))
        time.sleep(0.1)
        wire.send_packet(wire.part(0, 4, 4, flags=AGAIN))  # the switch gives its slot up, and the server says
        assert wire.receive_packet()[:2] == (HELD, 0)  # that it waits for others
        other.send_packet(other.part(0, 4, 4))
        assert wire.receive_packet() == other.receive_packet()
        wire.close()
        other.close()


def test_a_rank_that_is_late_or_leaves_is_named() -> None:
    with shared([2, 2], 16) as ways:
        for leaves in (True, False):
            job = Job(ways, 4)

            def work(rank: int, job: Job = job, leaves: bool = leaves) -> Any:
                client = job.join(rank)
                if rank == 3:
                    time.sleep(0.2 if leaves else 2)
                    client.close()
                    return None
                return job.reduce(client, numbers(1, 1000)[0], timeout=20 if leaves else 0.5)

            for error in everybody(4, work)[:3]:
                assert isinstance(error, _core.CommunicationError)
                assert error.kind == ("dead" if leaves else "timeout")
                assert "rank 3 left the job" in str(error) if leaves else "did not bring its part" in str(error)


def test_jobs_that_have_ended_leave_their_slots() -> None:
    with shared([2], 8, tenants=1) as ways:
        for seed in range(10):
            sources = numbers(2, 3000, seed=seed)
            for result in Job(ways, 2).all_reduce(sources):
                np.testing.assert_array_equal(result, in_rank_order(sources))

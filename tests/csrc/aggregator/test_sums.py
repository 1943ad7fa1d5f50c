"""What an aggregator and its workers make together: sums, bit for bit, for all sizes, formats, slots and tenants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core, _emulation
from tests.csrc.aggregator.serving import Array, Job, aggregator, everybody
from tests.sampled import examples


def numbers(ranks: int, elements: int, dtype: str = "float32", seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    if dtype == "int32":
        return [rng.integers(-(2**20), 2**20, elements).astype(np.int32) for _ in range(ranks)]
    return [rng.standard_normal(elements).astype(dtype) for _ in range(ranks)]


def in_rank_order(sources: list[Array]) -> Array:
    total = sources[0]
    for source in sources[1:]:
        total = total + source
    return total


@examples(60)
@given(
    ranks=st.integers(1, 5),
    elements=st.integers(1, 3000),
    slots=st.integers(2, 9),
    slot_bytes=st.sampled_from([64, 256, 1024, 4096]),
)
def test_float32_is_added_in_rank_order_on_every_rank(ranks: int, elements: int, slots: int, slot_bytes: int) -> None:
    sources = numbers(ranks, elements, seed=elements)
    with aggregator(slots=slots, slot_bytes=slot_bytes) as address:
        for result in Job(address, ranks).all_reduce(sources):
            np.testing.assert_array_equal(result, in_rank_order(sources), strict=True)


@examples(30)
@given(
    ranks=st.integers(1, 4),
    elements=st.integers(1, 3000),
    slots=st.integers(2, 8),
    slot_bytes=st.sampled_from([64, 256, 1024, 2048, 4096]),
    number_format=st.sampled_from(["int32_block", "bfloat16", "float32_fpisa"]),
)
def test_converted_formats_give_what_workers_and_switch_compute_in_one_place(
    ranks: int, elements: int, slots: int, slot_bytes: int, number_format: str
) -> None:
    sources = numbers(ranks, elements, seed=elements)
    per_chunk = slot_bytes // (2 if number_format == "bfloat16" else 4)
    expected = np.empty(elements, np.float32)
    for begin in range(0, elements, per_chunk):  # blocks do not cross chunks
        parts = [np.ascontiguousarray(source[begin : begin + per_chunk]) for source in sources]
        _emulation.sum_through_switch(number_format, expected[begin : begin + per_chunk], parts)
    with aggregator(slots=slots, slot_bytes=slot_bytes) as address:
        for result in Job(address, ranks).all_reduce(sources, number_format):
            np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_other_elements_travel_as_they_are(dtype: str) -> None:
    sources = numbers(3, 10_000, dtype)
    expected = [np.ascontiguousarray(source).view(np.uint8) for source in sources]
    total = np.empty_like(expected[0])
    _core.reduce(dtype, "sum", total, expected)
    with aggregator() as address:
        for result in Job(address, 3).all_reduce(sources):
            np.testing.assert_array_equal(result.view(np.uint8), total)


def test_operations_follow_one_another_in_place_and_with_changing_sizes() -> None:
    sizes = [1, 70_000, 3, 0, 8192, 100_001]
    with aggregator(slots=4, slot_bytes=1024) as address:
        job = Job(address, 3)

        def work(rank: int) -> list[Array]:
            client = job.join(rank)
            found = []
            for size, number_format in itertools.product(sizes, ("float32", "int32_block")):
                array = numbers(3, size, seed=size)[rank]
                client.all_reduce(number_format, "float32", array.ctypes.data, array.ctypes.data, size, 20.0)
                found.append(array)
            client.close()
            return found

        results = everybody(3, work)
    for at, (size, number_format) in enumerate(itertools.product(sizes, ("float32", "int32_block"))):
        exact = sum(source.astype(np.float64) for source in numbers(3, size, seed=size))
        for found in results:
            assert np.array_equal(found[at], results[0][at])
            np.testing.assert_allclose(found[at], exact, atol=1e-6, err_msg=f"{size} elements in {number_format}")


def test_tenants_do_not_meet() -> None:
    """Two jobs at once, with few slots: each gets its own sums."""
    with aggregator(slots=4, slot_bytes=256, tenants=2) as address:
        jobs = [Job(address, 3), Job(address, 2)]
        sources = [numbers(3, 20_000, seed=1), numbers(2, 30_000, seed=2)]
        results = everybody(2, lambda job: jobs[job].all_reduce(sources[job]))
    for job in range(2):
        for result in results[job]:
            np.testing.assert_array_equal(result, in_rank_order(sources[job]))


def test_a_job_makes_room_for_the_next_one() -> None:
    sources = numbers(2, 100)
    with aggregator(tenants=1) as address:
        for _ in range(5):
            for result in Job(address, 2).all_reduce(sources):
                np.testing.assert_array_equal(result, in_rank_order(sources))


def test_the_window_is_the_tenants_part_of_the_slots() -> None:
    with aggregator(slots=16, slot_bytes=4096, tenants=4) as address:
        client = Job(address, 1).join(0)
        assert (client.window, client.slot_bytes) == (2, 4096)  # each packet in flight has two slots
        client.close()


@examples(10)
@given(ranks=st.integers(1, 5), elements=st.integers(1, 3000), slots=st.integers(2, 9))
def test_parts_that_are_added_on_arrival_give_one_sum_in_any_order(ranks: int, elements: int, slots: int) -> None:
    whole = numbers(ranks, elements, "int32")
    sources = numbers(ranks, elements, seed=elements)
    with aggregator(slots=slots, slot_bytes=256, on_arrival=True, tenants=1) as address:
        for result in Job(address, ranks).all_reduce(whole):
            np.testing.assert_array_equal(result, in_rank_order(whole))
        results = Job(address, ranks).all_reduce(sources)
        for result in results:
            np.testing.assert_array_equal(result, results[0])
            np.testing.assert_allclose(result, in_rank_order(sources), atol=1e-5)

"""Every method of the Communicator on every kind of array, against NumPy.

Ranks are threads. Values are small integers, so that sums are exact in every dtype whatever their order.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import Communicator, Work, _core
from tests.collectives.arrays import DOORS, Array, Door, same, starts_of, values, whole_of
from tests.collectives.ranks import Ranks
from tests.sampled import examples

torch = pytest.importorskip("torch", reason="torch tensors are among the arrays that are tested")

SIZE = 3
EXAMPLES = examples(25)
counts_of_ranks = st.lists(st.integers(0, 70), min_size=SIZE, max_size=SIZE)


@pytest.fixture(scope="module")
def shared() -> Iterator[Ranks]:
    """Where nothing goes wrong between the ranks."""
    ranks = Ranks(SIZE)
    yield ranks
    ranks.close()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    """What turns NumPy memory into what is passed."""
    return DOORS[request.param]


# ---- who makes progress ----------------------------------------------------------------------------------------------


def test_a_group_of_one_is_done_at_once() -> None:
    def job(group: Communicator) -> None:
        source, target = values(0, 1000), np.zeros(1000, np.float32)
        for call in (group.all_reduce, group.all_gather, group.reduce_scatter, group.all_to_all):
            target[:] = 0
            work = call(source, target, async_op=True)
            assert isinstance(work, Work)
            assert work.done
            same(target, source)
        group.all_reduce(source, target, op="avg")
        same(target, source)
        with pytest.raises(ValueError, match="unknown algorithm rign"):
            group.all_reduce(source, target, algorithm="rign")
        group.barrier()

    ranks = Ranks(1)
    ranks.run(job)
    ranks.close()


def test_what_nobody_waits_for_is_done_too(shared: Ranks) -> None:
    """However often callers have come for what went before."""

    def job(group: Communicator) -> None:
        source, target = np.ones(10, np.float32), np.zeros(10, np.float32)
        for _ in range(50):
            work = group.all_reduce(source, target, async_op=True)
            assert isinstance(work, Work)
            work.wait()
        for size in (10, 100_000):
            source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
            work = group.all_reduce(source, target, async_op=True)
            assert isinstance(work, Work)
            late = time.monotonic() + 60
            while not work.done:
                assert time.monotonic() < late
                time.sleep(0.001)
            same(target, np.full(size, SIZE, np.float32))

    shared.run(job)


# ---- every collective, every kind of array --------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_all_reduce(shared: Ranks, door: Door, in_place: bool, asynchronous: bool) -> None:
    total = sum((values(r, 1000) for r in range(SIZE)), np.zeros(1000, np.float32))

    def job(group: Communicator) -> None:
        source, target = values(group.rank, 1000), np.zeros(1000, np.float32)
        work = group.all_reduce(door(source), None if in_place else door(target), async_op=asynchronous)
        if asynchronous:
            assert isinstance(work, Work)
            assert work.wait()
            assert work.done
        else:
            assert work is None
        same(source if in_place else target, total)
        if not in_place:
            same(source, values(group.rank, 1000))

    shared.run(job)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("counts", [None, [5, 0, 1200]])
def test_all_gather(shared: Ranks, door: Door, in_place: bool, counts: list[int] | None) -> None:
    sizes = counts or [7] * SIZE

    def job(group: Communicator) -> None:
        target = np.zeros(sum(sizes), np.float32)
        start = starts_of(sizes)[group.rank]
        mine = values(group.rank, sizes[group.rank])
        if in_place:
            part = target[start : start + sizes[group.rank]]
            part[:] = mine
            mine = part
        group.all_gather(door(mine), door(target), counts)
        same(target, whole_of(sizes))

    shared.run(job)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("counts", [None, [5, 0, 1200]])
def test_reduce_scatter(shared: Ranks, door: Door, in_place: bool, counts: list[int] | None) -> None:
    sizes = counts or [7] * SIZE
    total = sum((values(r, sum(sizes)) for r in range(SIZE)), np.zeros(sum(sizes), np.float32))

    def job(group: Communicator) -> None:
        source = values(group.rank, sum(sizes))
        mine = slice(starts_of(sizes)[group.rank], starts_of(sizes)[group.rank + 1])
        target = source[mine] if in_place else np.zeros(sizes[group.rank], np.float32)
        group.reduce_scatter(door(source), door(target), counts=counts)
        same(target, total[mine])

    shared.run(job)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("sizes", [None, [[3, 0, 900], [0, 4, 1], [900, 1, 0]]])
def test_all_to_all(shared: Ranks, door: Door, in_place: bool, sizes: list[list[int]] | None) -> None:
    """`sizes[s][d]`: elements from s to d; symmetric, so that one memory may hold both."""
    matrix = sizes or [[7] * SIZE] * SIZE

    def job(group: Communicator) -> None:
        me = group.rank
        sent = matrix[me]
        received = [matrix[peer][me] for peer in range(SIZE)]
        source = values(me, sum(sent))
        target = source if in_place else np.zeros(sum(received), np.float32)
        group.all_to_all(door(source), door(target), *((sent, received) if sizes else ()))
        expected = []
        for peer in range(SIZE):
            starts = starts_of(matrix[peer])
            expected.append(values(peer, sum(matrix[peer]))[starts[me] : starts[me + 1]])
        same(target, np.concatenate(expected))

    shared.run(job)


@pytest.mark.parametrize("root", range(SIZE))
def test_collectives_with_a_root(shared: Ranks, door: Door, root: int) -> None:
    sizes = [4, 0, 300]
    total = sum((values(r, 50) for r in range(SIZE)), np.zeros(50, np.float32))

    def job(group: Communicator) -> None:
        me, at_root = group.rank, group.rank == root
        buffer = values(me, 50)
        group.broadcast(door(buffer), root)
        same(buffer, values(root, 50))

        source, target = values(me, 50), np.zeros(50, np.float32)
        group.reduce(door(source), door(target) if at_root else None, root)
        same(source, values(me, 50))
        same(target, total if at_root else np.zeros(50, np.float32))
        group.reduce(door(source), root=root)
        same(source, total if at_root else values(me, 50))

        for counts in (None, sizes):
            parts = counts or [6] * SIZE
            whole = np.zeros(sum(parts), np.float32)
            group.gather(door(values(me, parts[me])), door(whole) if at_root else None, root, counts)
            if at_root:
                same(whole, whole_of(parts))
            part = np.zeros(parts[me], np.float32)
            group.scatter(door(whole_of(parts)) if at_root else None, door(part), root, counts)
            same(part, values(me, parts[me]))

    shared.run(job)


def test_the_root_may_gather_and_scatter_in_place(shared: Ranks) -> None:
    def job(group: Communicator) -> None:
        whole = np.zeros(SIZE * 5, np.float32)
        mine = whole[group.rank * 5 : (group.rank + 1) * 5]
        mine[:] = values(group.rank, 5)
        group.gather(mine, whole if group.rank == 1 else None, root=1)
        if group.rank == 1:
            same(whole, whole_of([5] * SIZE))
        group.scatter(whole if group.rank == 1 else None, mine, root=1)
        same(mine, values(group.rank, 5))

    shared.run(job)


def test_a_read_only_array_may_be_an_input(shared: Ranks) -> None:
    def job(group: Communicator) -> None:
        source, target = values(group.rank, 5), np.zeros(5, np.float32)
        source.flags.writeable = False
        group.all_reduce(source, target, "max")
        same(target, np.max([values(r, 5) for r in range(SIZE)], axis=0))
        if group.rank == 0:
            target = source
        group.broadcast(target)
        same(target, values(0, 5))

    shared.run(job)


def test_shapes_do_not_matter_elements_do(shared: Ranks) -> None:
    def job(group: Communicator) -> None:
        target = np.zeros((2, 3), np.float32)
        group.all_reduce(np.ones(6, np.float32), target)
        same(target, np.full((2, 3), SIZE, np.float32))
        scalar = np.array(group.rank, np.int64)
        group.all_reduce(scalar, op="max")
        assert scalar == SIZE - 1
        nothing = torch.empty(0)
        group.all_reduce(nothing)
        group.all_gather(nothing, torch.empty(0))

    shared.run(job)


# ---- element types and operations -----------------------------------------------------------------------------------


def bytes_of(tensor: Any) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", _core.DTYPES)
def test_every_dtype_as_tensor(shared: Ranks, dtype: str) -> None:
    """Moves are compared bit for bit, sums of 0, 1 and 2 in float64 (exact in all dtypes that have a sum)."""
    kind = getattr(torch, dtype)
    random = np.random.default_rng(7)
    size = torch.empty(0, dtype=kind).element_size()
    raw = [random.integers(0, 2 if dtype == "bool" else 256, 40 * size, np.uint8) for _ in range(SIZE)]
    small = [random.integers(0, 3, 40) for _ in range(SIZE)]

    def job(group: Communicator) -> None:
        mine = torch.from_numpy(raw[group.rank].copy()).view(kind)
        whole = torch.zeros(SIZE * 40, dtype=kind)
        group.all_gather(mine, whole)
        assert bytes_of(whole) == b"".join(part.tobytes() for part in raw)
        group.broadcast(mine, root=2)
        assert bytes_of(mine) == raw[2].tobytes()
        if _core.supports(dtype, "sum"):
            wide = torch.complex128 if kind.is_complex else torch.float64
            summand = torch.from_numpy(small[group.rank]).to(kind, copy=True)
            group.all_reduce(summand)
            expected = torch.from_numpy(np.sum(small, axis=0))
            if dtype == "bool":
                expected = expected > 0
            assert torch.equal(summand.to(wide), expected.to(wide))
        else:
            with pytest.raises(ValueError, match=f"sum of {dtype} has no meaning"):
                group.all_reduce(mine)

    shared.run(job)


NUMPY_DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("dtype", NUMPY_DTYPES.split())
def test_every_dtype_as_numpy_array(shared: Ranks, dtype: str) -> None:
    def job(group: Communicator) -> None:
        source = (values(group.rank, 30, "int64") % 3).astype(dtype)
        group.all_reduce(source)
        same(source, np.sum([values(r, 30, "int64") % 3 for r in range(SIZE)], axis=0).astype(dtype))

    shared.run(job)


FOLDS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda stack: stack.sum(0),
    "product": lambda stack: stack.prod(0),
    "min": lambda stack: stack.min(0),
    "max": lambda stack: stack.max(0),
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
    "avg": lambda stack: stack.sum(0) // SIZE,
}


@pytest.mark.parametrize("op", FOLDS)
def test_every_op(shared: Ranks, op: str) -> None:
    stack = np.stack([values(rank, 60, "int64") for rank in range(SIZE)])
    expected = FOLDS[op](stack)

    def job(group: Communicator) -> None:
        me = group.rank
        whole = stack[me].copy()
        group.all_reduce(whole, op=op)
        same(whole, expected)
        part = np.zeros(20, np.int64)
        group.reduce_scatter(stack[me], part, op)
        same(part, expected[20 * me : 20 * me + 20])
        at_root = np.zeros(60, np.int64)
        group.reduce(stack[me], at_root, 1, op)
        same(at_root, expected if me == 1 else np.zeros(60, np.int64))

    shared.run(job)


def test_ops_are_those_of_the_core() -> None:
    assert set(FOLDS) == {*_core.REDUCE_OPS, "avg"}


def test_factors(shared: Ranks) -> None:
    """Each rank's own: 1, 1/2, 1/4."""
    expected = sum((values(r, 20) * np.float32(0.5**r) for r in range(SIZE)), np.zeros(20, np.float32))

    def job(group: Communicator) -> None:
        me, factor = group.rank, 0.5**group.rank
        source, target = values(me, 20), np.zeros(20, np.float32)
        group.all_reduce(source, target, factor=factor)
        same(target, expected)
        same(source, values(me, 20))
        group.all_reduce(source, factor=factor)
        same(source, expected)
        target[:] = 0
        group.reduce(values(me, 20), target, 2, factor=factor)
        same(target, expected if me == 2 else np.zeros(20, np.float32))
        group.reduce_scatter(np.tile(values(me, 20), SIZE), target, factor=factor)
        same(target, expected)

    shared.run(job)


@EXAMPLES
@given(counts=counts_of_ranks)
def test_uneven_counts(shared: Ranks, counts: list[int]) -> None:
    total = sum((values(r, sum(counts)) for r in range(SIZE)), np.zeros(sum(counts), np.float32))

    def job(group: Communicator) -> None:
        me = group.rank
        whole, part = np.zeros(sum(counts), np.float32), np.zeros(counts[me], np.float32)
        group.all_gather(values(me, counts[me]), whole, np.array(counts))
        same(whole, whole_of(counts))
        group.reduce_scatter(values(me, sum(counts)), part, counts=counts)
        same(part, total[starts_of(counts)[me] :][: counts[me]])
        group.gather(values(me, counts[me]), whole, 1, counts)
        same(whole, whole_of(counts))
        group.scatter(whole_of(counts), part, 1, counts)
        same(part, values(me, counts[me]))

    shared.run(job)


@EXAMPLES
@given(matrix=st.lists(counts_of_ranks, min_size=SIZE, max_size=SIZE))
def test_uneven_exchange(shared: Ranks, matrix: list[list[int]]) -> None:
    def job(group: Communicator) -> None:
        me = group.rank
        received = [row[me] for row in matrix]
        target = np.zeros(sum(received), np.int32)
        group.all_to_all(values(me, sum(matrix[me]), "int32"), target, matrix[me], received)
        parts = [np.split(values(r, sum(row), "int32"), starts_of(row)[1:-1])[me] for r, row in enumerate(matrix)]
        same(target, np.concatenate(parts))

    shared.run(job)


@EXAMPLES
@given(shape=st.lists(st.integers(0, 9), max_size=4), op=st.sampled_from(["sum", "min", "bxor"]))
def test_any_shape(shared: Ranks, shape: list[int], op: str) -> None:
    def job(group: Communicator) -> None:
        array = values(group.rank, int(np.prod(shape)), "int16").reshape(shape)
        group.all_reduce(array, op=op)
        stack = np.stack([values(r, int(np.prod(shape)), "int16").reshape(shape) for r in range(SIZE)])
        same(array, FOLDS[op](stack).astype(np.int16))

    shared.run(job)

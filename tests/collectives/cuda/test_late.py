"""A Communicator's arrays on a GPU that is late: what waits for what, whose Programs run, and several hosts."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syntony import Communicator, _core
from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda import forming, group, staging
from tests.collectives.cuda.late_gpu import Array, LateGpu
from tests.collectives.cuda.schedules import schedule
from tests.collectives.ranks import Ranks
from tests.csrc.runtime.harness import Processes, Rank, run_as_processes

pytest.importorskip("syntony._cuda", reason="the CUDA executor was not built here: there is no nvcc")
HOSTS = ("one", "one", "other", "other")


def part(rank: int, count: int) -> np.ndarray:
    return (np.arange(count, dtype=np.int32) + 7 * rank) * (rank + 1)


def cases(ranks: int, count: int) -> Iterator[tuple[str, tuple[Any, ...], Callable[[int], np.ndarray], int, Any]]:
    """Collective, further arguments, a rank's input, elements of its output (0: in place), its right values by rank."""
    whole = count * ranks
    total = sum(part(rank, whole) for rank in range(ranks))
    yield "all_reduce", (), lambda r: part(r, whole), 0, lambda r: total
    yield (
        "all_gather",
        (),
        lambda r: part(r, count),
        whole,
        lambda r: np.concatenate([part(k, count) for k in range(ranks)]),
    )
    yield "reduce_scatter", (), lambda r: part(r, whole), count, lambda r: total[r * count :][:count]
    yield (
        "all_to_all",
        (),
        lambda r: part(r, whole),
        whole,
        lambda r: np.concatenate([part(k, whole)[r * count :][:count] for k in range(ranks)]),
    )
    yield "broadcast", (1,), lambda r: part(r, count), 0, lambda r: part(1, count)


def compare(ranks: Communicator, gpu: LateGpu, count: int, **options: Any) -> None:
    """Every collective, with and without async_op, against NumPy; inputs come late."""
    stream = gpu.Stream(0)
    for name, arguments, given, size, wanted in cases(ranks.size, count):
        for async_op in (False, True):
            source = Array(gpu, len(given(0)), stream=stream).become(given(ranks.rank))
            target = Array(gpu, size, stream=stream) if size else source
            arrays = (source, target) if size else (source,)
            work = getattr(ranks, name)(*arrays, *arguments, async_op=async_op, **options)
            if async_op:
                assert work.wait()
            seen = target.seen()
            source.become(0)  # the caller's next step must not be seen
            stream.synchronize()
            assert np.array_equal(seen[0], wanted(ranks.rank)), f"{name}, async_op={async_op}"
            assert work is None or work.done


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> LateGpu:
    found = LateGpu()
    monkeypatch.setattr(forming, "executor", lambda: found)
    return found


def on_ranks(gpu: LateGpu, size: int, job: Callable[[Communicator], None]) -> None:
    def with_kernels(ranks: Communicator) -> None:
        kernels = ranks._core.split(0, ranks.rank, 0.0, "kernels")
        assert kernels is not None
        gpu.kernels[ranks.rank] = kernels
        job(ranks)

    ranks = Ranks(size)
    ranks.run(with_kernels)
    ranks.close()


def test_streams_wait_for_each_other(gpu: LateGpu) -> None:
    on_ranks(gpu, 3, lambda ranks: compare(ranks, gpu, 100))


def let_go(ranks: Communicator, gpu: LateGpu) -> None:
    """All ranks have seen what is so while a kernel has not ended."""
    ranks.barrier()
    gpu.may_compute.set()


def test_calls_follow_each_other_across_streams(gpu: LateGpu) -> None:
    gpu.may_compute.clear()

    def job(ranks: Communicator) -> None:
        array = Array(gpu, 10, stream=gpu.Stream(0)).become(1)
        first = ranks.all_reduce(array, async_op=True)
        assert first is not None
        assert not first.done
        let_go(ranks, gpu)
        other = Array(gpu, 10, stream=gpu.Stream(0)).become(5)
        ranks.all_reduce(other)
        assert first.wait()
        ranks.all_reduce(array)
        seen = array.seen(), other.seen()
        for stream in list(gpu.streams.values()):
            stream.synchronize()
        assert [values[0].tolist() for values in seen] == [[4] * 10, [10] * 10]

    on_ranks(gpu, 2, job)


def test_the_host_waits_for_arrays_that_know_no_stream(gpu: LateGpu) -> None:
    gpu.may_compute.clear()

    def job(ranks: Communicator) -> None:
        array = Array(gpu, 10).become(1)
        work = ranks.all_reduce(array, async_op=True)
        assert work is not None
        assert not work.wait(1e-3)
        let_go(ranks, gpu)
        assert work.wait(30.0)
        assert array.values.tolist() == [2] * 10
        again = ranks.all_reduce(array, async_op=True)
        assert again is not None
        assert again.wait()
        assert array.values.tolist() == [4] * 10

    on_ranks(gpu, 2, job)


def test_arrays_are_kept_as_long_as_they_are_worked_on(gpu: LateGpu) -> None:
    gpu.may_compute.clear()

    def job(ranks: Communicator) -> None:
        stream = gpu.Stream(0)
        array = Array(gpu, 10, stream=stream).become(1)
        alive = weakref.ref(array)
        work = ranks.all_reduce(array, async_op=True)
        assert work is not None
        del array, work
        stream.synchronize()  # which is through with it
        gc.collect()
        assert alive() is not None
        let_go(ranks, gpu)
        for each in list(gpu.streams.values()):
            each.synchronize()
        ranks.barrier()  # the other's streams wait for us from here on
        later = ranks.all_reduce(Array(gpu, 10, stream=stream), async_op=True)
        gc.collect()
        assert alive() is None
        assert later is not None
        assert later.wait()

    on_ranks(gpu, 2, job)


def test_an_average_beside_the_stream_is_divided_there(gpu: LateGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def at_stream(array: Array, device: int, stream: int) -> Iterator[None]:
        before, array._stream = array._stream, gpu.streams[stream]
        yield
        array._stream = before

    def job(ranks: Communicator) -> None:
        array = Array(gpu, 10, "float32", gpu.Stream(0)).become(3)
        with pytest.raises(UsageError, match="avg with async_op divides beside the current stream"):
            ranks.all_reduce(array, op="avg", async_op=True)
        ranks.barrier()
        monkeypatch.setattr(group, "at_stream", at_stream)
        ranks.barrier()
        work = ranks.all_reduce(array, op="avg", async_op=True)
        assert work is not None
        assert work.wait()
        seen = array.seen()
        array._stream.synchronize()
        assert seen[0].tolist() == [3] * 10

    on_ranks(gpu, 2, job)


# ---- whose Programs -------------------------------------------------------------------------------------------------


def test_programs_are_those_of_the_cpu(gpu: LateGpu, tmp_path: Path) -> None:
    path = schedule(tmp_path, "ring:3", "all_reduce", "forest")

    def job(ranks: Communicator) -> None:
        array = Array(gpu, 1000, stream=gpu.Stream(0))

        def ran(**options: Any) -> str:
            ranks.all_reduce(array.become(part(ranks.rank, 1000)), **options)
            seen = array.seen()
            array._stream.synchronize()
            assert np.array_equal(seen[0], sum(part(rank, 1000) for rank in range(3)))
            return str(gpu.ranks[ranks.rank].launched[-1].program.name)

        name = ranks.load(path)
        assert ran(algorithm=name) == ranks._core.program_for("all_reduce", 0, 4000, name).name
        ranks._core.add_program(name, _core.build("dbt", "all_reduce", 3, 0, None))
        assert ran(algorithm=name) == "dbt", "another one under this name"
        assert (ran(), ran(algorithm="shared")) == ("direct", "direct")
        ranks._core.set_size_ranges(
            "auto", "all_reduce", [(3999, "dbt", "the tuner says so"), (4000, "ring", "as well")]
        )
        assert ran() == "ring"
        ranks.set_canonical(True)
        assert ran() == "pairwise"

    on_ranks(gpu, 3, job)


@pytest.mark.parametrize("in_place", [True, False])
def test_programs_that_are_right_in_one_place_only(gpu: LateGpu, in_place: bool) -> None:
    ring = _core.build("ring", "all_reduce", 2, 0, None)
    program = ring.replace(name="picky", in_place=in_place, out_of_place=not in_place)

    def job(ranks: Communicator) -> None:
        ranks._core.add_program("picky", program)
        stream = gpu.Stream(0)
        for apart in (False, True):
            source = Array(gpu, 100, stream=stream).become(part(ranks.rank, 100))
            target = Array(gpu, 100, stream=stream) if apart else source
            ranks.all_reduce(source, target, algorithm="picky")
            given, seen = source.seen(), target.seen()
            stream.synchronize()
            assert np.array_equal(seen[0], part(0, 100) + part(1, 100))
            assert not apart or np.array_equal(given[0], part(ranks.rank, 100))
        slow = Array(gpu, 100, stream=gpu.Stream(0)).become(part(ranks.rank, 100))
        quick = Array(gpu, 100, stream=gpu.Stream(0))  # whose copy must not lie where the other's does
        both = []
        for array in (slow, quick):
            ranks.all_reduce(array, algorithm="picky")
            both.append(array.seen())
        for other in (slow, quick):
            other._stream.synchronize()
        assert np.array_equal(both[0][0], part(0, 100) + part(1, 100))
        assert both[1][0].tolist() == [2 * 99] * 100

    on_ranks(gpu, 2, job)


def test_what_cannot_be_lowered_is_refused_at_all_ranks(gpu: LateGpu) -> None:
    def job(ranks: Communicator) -> None:
        array = Array(gpu, 8, "complex64", gpu.Stream(0))
        with pytest.raises(UsageError, match="cannot run on a GPU here: product of complex64 is not among"):
            ranks.all_reduce(array, op="product")
        given, taken = Array(gpu, 10), Array(gpu, 4 * ranks.rank + 4)
        with pytest.raises(UsageError, match=r"algorithm ring relays data .* use `direct` for an all_to_all"):
            ranks.all_to_all(given, taken, [1, 2, 3, 4], [ranks.rank + 1] * 4, algorithm="ring")
        ranks.all_reduce(array)
        array._stream.synchronize()

    on_ranks(gpu, 4, job)


# ---- several hosts --------------------------------------------------------------------------------------------------


def joined(rank: Rank) -> tuple[Communicator, LateGpu]:
    gpu = LateGpu()
    forming.executor = lambda: gpu  # this process is the test's own
    staging.PIECE_BYTES = 4096
    return Communicator(rank.join(timeout=40.0).raw), gpu


def between_hosts(rank: Rank, path: Path) -> None:
    ranks, gpu = joined(rank)
    ever_larger = [Array(gpu, size, stream=gpu.Stream(0)) for size in (10, 20, 30, 40, 500, 600, 700, 800, 900)]
    for array, work in [(array, ranks.all_reduce(array, async_op=True)) for array in ever_larger]:
        assert work is not None
        assert work.wait()
        seen = array.seen()
        array._stream.synchronize()
        assert (seen[0] == 4 * 99).all()
    for count in (1, 3000):
        compare(ranks, gpu, count)
    for algorithm in ("ring", "hierarchical", "dbt", ranks.load(path)):
        array = Array(gpu, 3000, stream=gpu.Stream(0)).become(part(rank.rank, 3000))
        ranks.all_reduce(array, algorithm=algorithm)
        seen = array.seen()
        array._stream.synchronize()
        assert np.array_equal(seen[0], sum(part(k, 3000) for k in range(4))), algorithm
    halves = Array(gpu, 5000, "float32", gpu.Stream(0)).become(rank.rank)
    ranks.all_reduce(halves, op="avg")
    given = Array(gpu, 4 * (rank.rank + 1), stream=gpu.Stream(0)).become(rank.rank)
    taken = Array(gpu, 10, stream=given._stream)
    ranks.all_to_all(given, taken, [rank.rank + 1] * 4, [1, 2, 3, 4])
    averages, came = halves.seen(), taken.seen()
    for stream in list(gpu.streams.values()):
        stream.synchronize()
    assert averages[0].tolist() == [1.5] * 5000
    assert came[0].tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    with pytest.raises(ValueError, match="algorithm shared needs all ranks on one host; these are on 2"):
        ranks.all_reduce(halves, algorithm="shared")
    gpu.captures = True
    with pytest.raises(UsageError, match="goes through the hosts' memory, which a graph of a GPU cannot hold"):
        ranks.all_reduce(halves)
    ranks.close()


@pytest.mark.timeout(200)
def test_hosts_give_what_numpy_gives(tmp_path: Path) -> None:
    path = schedule(tmp_path, "ring:4", "all_reduce", "forest")
    run_as_processes(between_hosts, 4, path, hosts=HOSTS, deadline=150.0)


def in_trouble(rank: Rank, how: str) -> str:
    ranks, gpu = joined(rank)
    array = Array(gpu, 8, stream=gpu.Stream(0)).become(1)
    if how == "no GPU" and rank.rank == 1:
        forming.executor = lambda: (_ for _ in ()).throw(RuntimeError("this process sees none"))
    if how != "no GPU":
        ranks.all_reduce(array)
        rank.tell("formed")
        if how == "death" and rank.rank == 1:
            time.sleep(60)  # until it is killed
        rank.meet("formed", [0, 2] if how == "death" else None)
    gpu.broken = how == "copies" and rank.rank == 1
    with pytest.raises(RuntimeError) as caught:
        ranks.all_reduce(array, async_op=how != "no GPU").wait()  # type: ignore[union-attr]
    ranks.close()
    return str(caught.value)


@pytest.mark.parametrize("how", ["no GPU", "copies"])
def test_what_fails_at_one_rank_fails_at_all_and_is_named(how: str) -> None:
    words = {"no GPU": "rank 1: this process sees none", "copies": "rank 1, on GPU 0: all_reduce failed: copying"}
    for sentence in run_as_processes(in_trouble, 3, how, hosts=("one", "other", "other")):
        assert words[how] in sentence


def test_a_death_on_another_host_is_named() -> None:
    with Processes(in_trouble, 3, "death", hosts=("one", "other", "other")) as ranks:
        ranks.wait_for_event("formed")
        ranks.kill(1)
        results = ranks.finish()
    for rank in (0, 2):
        assert "rank 1" in results[rank]
        assert "all_reduce" in results[rank]

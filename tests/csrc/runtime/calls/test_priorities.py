"""Classes of operations: nothing is mixed up, no order is needed between them, and trouble in one has a name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.csrc.runtime.calls.test_in_flight import on_threads, random_cases
from tests.csrc.runtime.cases import Call, even_case, generator
from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import Rank, RankFailedError, run_as_processes, run_as_threads

SMALL = {"SYNTONY_SLOT_BYTES": "4096", "SYNTONY_CREDIT": "8192"}
CLASSES = ("low", "normal", "high")


def several_classes(rank: Rank, seed: int) -> None:
    """Each class's operations in one order, the classes interleaved and waited for by every rank as it likes."""
    rng, own = np.random.default_rng(seed), np.random.default_rng((seed, rank.rank))
    group = rank.join()
    tracks = {priority: random_cases(rng, group.size, 12) for priority in CLASSES}
    partition = int(rng.choice([0, 1000, 70_000]))
    started = []
    while any(tracks.values()):
        priority = own.choice([one for one in CLASSES if tracks[one]])
        call = Call(tracks[priority].pop(0), group.rank, group.size)
        started.append((call, call.start(group, async_op=True, priority=priority, partition=partition)))
    for i in own.permutation(len(started)):
        call, work = started[i]
        work.wait()
        call.check()
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_classes_are_launched_in_any_order(hosts: str) -> None:
    seed = int(generator("classes", hosts).integers(1 << 30))
    print("seed", seed)
    run_as_processes(several_classes, 3, seed, hosts=hosts, environment=SMALL)


def two_groups(rank: Rank) -> None:
    """Threads with a group each, of different classes, in one process."""
    groups = [rank.join(name="bulk"), rank.join(name="urgent")]

    def bulk() -> None:
        array = np.full(300_007, rank.rank + 1, np.int64)
        for _ in range(3):
            groups[0].all_reduce(array, priority="low", algorithm="ring", async_op=True).wait()
        assert np.all(array == 3 * 2**2)

    def urgent() -> None:
        array = np.full(100, rank.rank + 1, np.int64)
        for i in range(30):
            array[:] = rank.rank + i
            groups[1].all_reduce(array, priority="high")
            assert np.all(array == 2 * i + 1)

    on_threads(bulk, urgent)
    for group in groups:
        group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_groups_and_threads(hosts: str) -> None:
    run_as_processes(two_groups, 2, hosts=hosts, environment=SMALL)


def test_groups_and_threads_of_one_process() -> None:
    run_as_threads(two_groups, 2, share_process=True)


def bulk_first(rank: Rank) -> None:
    """Rank 1 launches what is urgent only after the bulk, which rank 0 keeps back for it: nobody waits for ever."""
    group = rank.join()
    large, small = np.full(2_000_003, rank.rank + 1, np.int64), np.full(10, rank.rank + 1, np.int64)
    if rank.rank == 0:
        urgent = group.all_reduce(small, priority="high", async_op=True)
        bulk = group.all_reduce(large, priority="low", algorithm="ring", async_op=True)
    else:
        bulk = group.all_reduce(large, priority="low", algorithm="ring")
        assert bulk is None
        urgent = group.all_reduce(small, priority="high", async_op=True)
    for work in filter(None, (bulk, urgent)):
        work.wait()
    assert np.all(large == 3)
    assert np.all(small == 3)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_who_yields_is_not_stopped(hosts: str) -> None:
    run_as_processes(bulk_first, 2, hosts=hosts, environment=SMALL)


def overtaken(rank: Rank) -> list[bool]:
    """Whether something urgent, launched behind bulk, was done before it; in several attempts, as a rank that loses its
    CPU between the two launches launches the second one too late."""
    group, found = rank.join(), []
    for _ in range(8):
        large, small = np.full(8 << 20, rank.rank + 1, np.int64), np.full(10, rank.rank + 1, np.int64)
        bulk = group.all_reduce(large, priority="low", async_op=True)
        group.all_reduce(small, priority="high")
        found.append(not bulk.done)
        bulk.wait()
        assert np.all(large == 3)
        assert np.all(small == 3)
        all_ranks = np.array([found[-1]], np.int64)
        group.all_reduce(all_ranks)
        if all_ranks[0] == group.size:
            break
    group.shutdown()
    return found


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_urgent_operations_overtake(hosts: str) -> None:
    found = run_as_processes(overtaken, 2, hosts=hosts)
    assert all(one[-1] for one in found), found


PARTS = [(c, dtype, op) for c in ("all_reduce", "all_to_all", "broadcast") for dtype, op in (("float32", "sum"),)]


def in_parts(rank: Rank, hosts: str) -> None:
    group = rank.join()
    rng = generator("parts", hosts)
    for collective, dtype, op in PARTS:
        for count, partition in ((0, 100), (1, 1), (1000, 64), (5003, 4096), (5003, 1 << 20)):
            for in_place in (False, True):
                case = even_case(
                    collective,
                    group.size,
                    count,
                    dtype=dtype,
                    op=op,
                    in_place=in_place,
                    seed=int(rng.integers(1 << 30)),
                )
                call = Call(case, group.rank, group.size)
                call.start(group, partition=partition)
                call.check()
    launched = group.raw.sequence
    array = np.ones(1000, np.float64)
    group.all_reduce(array, partition=1000)
    assert group.raw.sequence == launched + 8 or group.size == 1
    assert np.all(array == group.size)
    group.shutdown()


@pytest.mark.parametrize(("ranks", "hosts"), [(3, ""), (3, "aab"), (1, "")])
def test_parts_are_the_whole(ranks: int, hosts: str) -> None:
    run_as_processes(in_parts, ranks, hosts, hosts=hosts)


def together(rank: Rank) -> None:
    group = rank.join()
    arrays = [np.full(n, rank.rank + n, np.float32) for n in (1, 0, 33, 1000)]
    buffers = [(array.ctypes.data, array.ctypes.data, array.size) for array in arrays]
    launched = group.raw.sequence
    group.raw.all_reduce_together(dtype="float32", buffers=buffers, average=True, priority="low", async_op=True).wait()
    assert group.raw.sequence == launched + 1
    assert all(np.all(array == array.size + 1) for array in arrays)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_buffers_together(hosts: str) -> None:
    run_as_processes(together, 3, hosts=hosts)


# ---- trouble

Failure = tuple[str, tuple[int, ...], str, float]


def orders(rank: Rank) -> Failure:
    """An all_to_all goes ahead of an all_reduce, but both must be called in one order."""
    group = rank.join()
    array, exchange = np.zeros(10), even_case("all_to_all", 2, 5)
    if rank.rank == 0:
        failure = failure_of(lambda: Call(exchange, 0, 2).start(group))
    else:
        failure = failure_of(lambda: group.all_reduce(array))
    rank.meet("end")
    return failure


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_other_collectives_of_other_classes_disagree(hosts: str) -> None:
    for kind, guilty, sentence, _ in run_as_processes(orders, 2, hosts=hosts):
        assert kind == "mismatch", sentence
        assert set(guilty) == {0, 1}
        assert "all_to_all #1 (" in sentence, sentence
        assert "all_reduce #1 (" in sentence, sentence


def counts(rank: Rank, priority: str) -> Failure:
    """Several classes in flight, of which one disagrees."""
    group = rank.join()
    others = [np.ones(50_000) for _ in range(6)]
    array = np.zeros(100 + rank.rank)
    for other, one in zip(others, CLASSES * 2, strict=True):
        group.all_reduce(other, priority=one, async_op=True)
    failure = failure_of(lambda: group.all_reduce(array, priority=priority))
    for one in CLASSES:
        again = failure_of(lambda one=one: group.all_reduce(others[0], priority=one))
        assert again[:3] == failure[:3]
    rank.meet("end")
    return failure


@pytest.mark.parametrize("hosts", ["", "ab"])
@pytest.mark.parametrize("priority", CLASSES)
def test_a_disagreement_in_any_class_ends_the_group(priority: str, hosts: str) -> None:
    for kind, guilty, sentence, _ in run_as_processes(counts, 2, priority, hosts=hosts):
        assert kind == "mismatch", sentence
        assert set(guilty) == {0, 1}
        assert f"{priority} all_reduce #3" in sentence, sentence
        assert "100 against 101" in sentence or "101 against 100" in sentence, sentence


def late(rank: Rank) -> Failure | None:
    group = rank.join()
    array = np.zeros(10)
    group.all_reduce(array, priority="low")
    if rank.rank == 1:
        rank.meet("over")
        return None
    failure = failure_of(lambda: group.all_reduce(array, priority="low", timeout=0.3))
    rank.meet("over")
    return failure


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_late_ranks_are_named_in_any_class(hosts: str) -> None:
    failure = run_as_processes(late, 2, hosts=hosts)[0]
    assert failure is not None
    kind, guilty, sentence, _ = failure
    assert (kind, guilty) == ("timeout", (1,))
    assert "low all_reduce #2" in sentence, sentence
    assert "its last: low all_reduce #1" in sentence, sentence


def joins(rank: Rank) -> None:
    rank.join()


def test_a_credit_that_cannot_be_is_told() -> None:
    with pytest.raises(RankFailedError, match="SYNTONY_CREDIT=12 must be a number of bytes between"):
        run_as_processes(joins, 2, environment={"SYNTONY_CREDIT": "12"})

"""Many operations, groups and threads at once: nothing is lost, nothing waits for what it does not need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.csrc.runtime.cases import ALGORITHMS, COLLECTIVES, Call, Case, even_case, generator
from tests.csrc.runtime.elements import PAIRS
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Rank, RankFailedError, run_as_processes, run_as_threads

SMALL_SLOTS = {"SYNTONY_SLOT_BYTES": "4096"}


def random_cases(rng: np.random.Generator, ranks: int, number: int) -> list[Case]:
    cases = []
    for _ in range(number):
        collective = str(rng.choice(COLLECTIVES))
        dtype, op = PAIRS[rng.integers(len(PAIRS))]
        rooted = collective in ("broadcast", "reduce", "gather", "scatter")
        cases.append(
            even_case(
                collective,
                ranks,
                int(rng.choice([0, 1, 65, 3001, 40_009])),
                algorithm=str(rng.choice(ALGORITHMS[collective])),
                dtype=dtype,
                op=op,
                root=int(rng.integers(ranks)) if rooted else 0,
                in_place=bool(rng.integers(2)),
                seed=int(rng.integers(1 << 30)),
            )
        )
    return cases


def flood(group: Group, cases: Sequence[Case], seed: int) -> None:
    """Everything is started before anything is waited for; every rank waits in an order of its own."""
    calls = [Call(case, group.rank, group.size) for case in cases]
    works = [call.start(group, async_op=True) for call in calls]
    for i in np.random.default_rng((seed, group.rank)).permutation(len(cases)):
        works[i].wait()
        calls[i].check()
    assert all(work.done for work in works)


def flooded(rank: Rank, cases: Sequence[Case], seed: int) -> None:
    group = rank.join()
    flood(group, cases, seed)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_many_operations_waited_for_out_of_order(hosts: str) -> None:
    cases = random_cases(generator("flood", hosts), 3, 60)
    run_as_processes(flooded, 3, cases, 1, hosts=hosts, environment=SMALL_SLOTS)


@pytest.mark.parametrize("share_process", [False, True])
def test_many_operations_between_threads(share_process: bool) -> None:
    cases = random_cases(generator("flood threads", share_process), 3, 40)
    run_as_threads(flooded, 3, cases, 2, share_process=share_process)


def sync_and_async(rank: Rank) -> None:
    """A blocking call behind asynchronous ones, many times: what is in flight changes hands and none is forgotten."""
    group = rank.join()
    for i in range(100):
        arrays = [np.full(n, rank.rank + i, np.int64) for n in (10, 5000, 3)]
        works = [group.all_reduce(array, async_op=True) for array in arrays[:2]]
        group.all_reduce(arrays[2])
        assert np.all(arrays[2] == 3 * i + 3)
        if i % 2:
            works.reverse()
        for work in works:
            work.wait()
        assert all(np.all(array == 3 * i + 3) for array in arrays)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_blocking_calls_behind_asynchronous_ones(hosts: str) -> None:
    run_as_processes(sync_and_async, 3, hosts=hosts)


def nobody_waits(rank: Rank) -> None:
    """An operation that nobody waits for is done all the same."""
    group = rank.join()
    array = np.full(100_003, rank.rank + 1, np.int64)
    work = group.all_reduce(array, async_op=True)
    rank.meet("started")
    while not work.done:
        threading.Event().wait(0.001)
    assert np.all(array == 3)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_asynchronous_operations_need_no_wait(hosts: str) -> None:
    run_as_processes(nobody_waits, 2, hosts=hosts)


def left_in_flight(rank: Rank) -> None:
    group = rank.join()
    arrays = [np.full(200_003, rank.rank + 1, np.int64) for _ in range(4)]
    works = [group.all_reduce(array, async_op=True) for array in arrays]
    group.shutdown()
    assert all(work.wait() and np.all(array == 3) for work, array in zip(works, arrays, strict=True))


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_shutdown_finishes_what_is_in_flight(hosts: str) -> None:
    run_as_processes(left_in_flight, 2, hosts=hosts)


def timed_wait(rank: Rank) -> None:
    group = rank.join()
    array = np.full(10, rank.rank + 1, np.int64)
    if rank.rank == 0:
        work = group.all_reduce(array, async_op=True)
        assert work.wait(0.05) is False  # a wait that gives up is no failure
        rank.meet("given up")
        assert work.wait() is True
        assert work.wait() is True
    else:
        rank.meet("given up")
        group.all_reduce(array)
    assert np.all(array == 3)
    group.shutdown()


def test_a_wait_with_a_timeout_gives_up_and_the_operation_goes_on() -> None:
    run_as_processes(timed_wait, 2)


def on_threads(*jobs: Callable[[], None]) -> None:
    faults: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    if faults:
        raise faults[0]
    if any(thread.is_alive() for thread in threads):
        raise RankFailedError("a thread is stuck")


def several_groups(rank: Rank, cases: Sequence[Case], pair_cases: Sequence[Case]) -> None:
    """World, a copy of it, and halves; operations of all of them in flight at once, then a thread for each."""
    world, copy = rank.join(name="world"), rank.join(name="copy")
    half = rank.join(name="half", members=[0, 1] if rank.rank < 2 else [2, 3])
    assert (half.rank, half.size) == (rank.rank % 2, 2)

    calls = []
    for whole, pair in zip(cases, pair_cases, strict=True):
        for group, case in ((world, whole), (half, pair), (copy, whole)):
            call = Call(case, group.rank, group.size)
            calls.append((call, call.start(group, async_op=True)))
    for call, work in reversed(calls):
        work.wait()
        call.check()

    on_threads(
        lambda: flood(world, cases, 1),
        lambda: flood(copy, list(reversed(cases)), 2),
        lambda: flood(half, pair_cases, 3),
    )
    for group in (copy, half, world):
        group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aabb", "abab"])
def test_several_groups_and_threads(hosts: str) -> None:
    rng = generator("groups", hosts)
    run_as_processes(several_groups, 4, random_cases(rng, 4, 15), random_cases(rng, 2, 15), hosts=hosts)


def blocked_beside_busy(rank: Rank) -> None:
    """While one thread waits in a collective for a late rank, other threads of the process go on: in another group, and
    even making one."""
    slow, quick = rank.join(name="slow"), rank.join(name="quick")
    array = np.full(8, rank.rank, np.int64)

    def late() -> None:
        if rank.rank == 1:
            rank.meet("done meanwhile")  # nothing of `slow` before the other thread is through
        slow.all_reduce(array)

    def meanwhile() -> None:
        for i in range(20):
            other = np.full(100 * i, rank.rank + 1, np.int64)
            quick.all_reduce(other)
            assert np.all(other == 3)
        third = rank.join(name="third")
        third.barrier()
        third.shutdown()
        if rank.rank == 0:
            rank.meet("done meanwhile")

    if rank.rank == 1:
        meanwhile()
        late()
    else:
        on_threads(late, meanwhile)
    assert np.all(array == 1)
    for group in (slow, quick):
        group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_a_thread_that_waits_holds_up_nobody(hosts: str) -> None:
    run_as_processes(blocked_beside_busy, 2, hosts=hosts)


def one_group_many_threads(rank: Rank) -> None:
    """Point-to-point calls of one group from several threads: tags keep them apart."""
    group = rank.join()
    other = 1 - rank.rank

    def talk(tag: int) -> None:
        for i in range(30):
            buffer = np.zeros(i * 100, np.int64)
            work = group.receive(buffer, other, tag, async_op=True)
            group.send(np.full(i * 100, tag + i, np.int64), other, tag)
            work.wait()
            assert np.all(buffer == tag + i)

    on_threads(*(lambda tag=tag: talk(tag) for tag in range(4)))
    group.barrier()
    group.shutdown()


def test_one_group_from_several_threads() -> None:
    run_as_processes(one_group_many_threads, 2)


def many_groups(rank: Rank) -> None:
    """Groups come and go; descriptors do not pile up."""

    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    first = rank.join()
    first.barrier()
    before = open_descriptors()
    for i in range(12):
        group = rank.join(name="passing")
        array = np.full(i, rank.rank + 1, np.int64)
        group.all_reduce(array)
        assert np.all(array == 3)
        group.shutdown()
        del group
    assert open_descriptors() <= before
    first.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_groups_leave_nothing_behind(hosts: str) -> None:
    run_as_processes(many_groups, 2, hosts=hosts)


@pytest.mark.soak
@pytest.mark.parametrize("hosts", ["", "aabb"])
@pytest.mark.parametrize("turn", range(10))
def test_floods(hosts: str, turn: int) -> None:
    cases = random_cases(generator("floods", hosts, turn), 4, 400)
    run_as_processes(flooded, 4, cases, turn, hosts=hosts, environment=SMALL_SLOTS, deadline=300.0)

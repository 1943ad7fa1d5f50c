"""Ctrl-C while a rank waits: its handler runs soon, and what that raises leaves no operation behind in its memory."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import numpy as np
import pytest

from tests.csrc.runtime.group import Group, failure_of
from tests.csrc.runtime.harness import Processes, Rank

HOSTS = pytest.mark.parametrize("hosts", ["", "ab"])
SOON = 10.0  # seconds, on a busy machine; the operations' time-out is 30


def interrupt_in(group: Group, sequence: int) -> None:
    """A while after the group has started its operation number `sequence`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while group.raw.sequence < sequence:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


def interrupted_in_a_call(rank: Rank, count: int) -> tuple[str, tuple[int, ...], str, float]:
    group = rank.join()
    group.all_reduce(np.ones(count, np.float32))
    mine = np.ones(count, np.float32)
    if rank.rank == 1:
        began = time.monotonic()
        interrupt_in(group, 2)
        with pytest.raises(KeyboardInterrupt):
            group.all_reduce(mine)
        assert time.monotonic() - began < SOON
        mine[:] = 77  # nobody reads it any more
    rank.meet("interrupted")

    def go_on() -> None:
        group.all_reduce(mine)  # it may still succeed where rank 1 had given all that it takes
        assert rank.rank == 1 or (mine == 2).all(), mine
        time.sleep(0.1)
        group.all_reduce(mine)

    return failure_of(go_on)


@HOSTS
@pytest.mark.parametrize("count", [1, 1000, 1_000_003])
def test_a_call_that_is_interrupted_ends_the_group(hosts: str, count: int) -> None:
    with Processes(interrupted_in_a_call, 2, count, hosts=hosts) as ranks:
        for kind, guilty, sentence, _ in ranks.finish():
            assert (kind, guilty) == ("aborted", (1,))
            assert "rank 1 aborted group" in sentence
            assert f"a signal interrupted all_reduce #2 (sum of {count} x float32)" in sentence


def interrupted_in_a_wait(rank: Rank) -> float:
    group = rank.join()
    array = np.ones(1000, np.float32)
    if rank.rank == 1:
        work = group.all_reduce(array, async_op=True)

        def wait() -> None:
            interrupt_in(group, 1)
            work.wait()

        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - began < SOON
    rank.meet("interrupted")
    if rank.rank == 0:
        work = group.all_reduce(array, async_op=True)
    work.wait()
    group.all_reduce(array)
    return float(array[0])


@HOSTS
def test_a_wait_that_is_interrupted_leaves_the_operation_going_on(hosts: str) -> None:
    with Processes(interrupted_in_a_wait, 2, hosts=hosts) as ranks:
        assert ranks.finish() == [4.0, 4.0]


def interrupted_in_a_split(rank: Rank) -> tuple[str, tuple[int, ...], str, float] | None:
    group = rank.join()

    def split() -> None:
        group.raw.split(0, 0, 30.0, "half")

    if rank.rank == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            split()
        assert time.monotonic() - began < SOON
    rank.meet("interrupted")
    told = failure_of(split) if rank.rank == 0 else None
    group.all_reduce(np.ones(3))  # the group itself goes on
    split()
    return told


@HOSTS
def test_a_split_that_is_interrupted_ends_for_all(hosts: str) -> None:
    with Processes(interrupted_in_a_split, 2, hosts=hosts) as ranks:
        told, _ = ranks.finish()
    assert told is not None
    assert told[:2] == ("aborted", (1,))
    assert re.search(r"rank 1.* was interrupted by a signal while a group was made out of", told[2])


def handled(rank: Rank) -> tuple[int, float]:
    group = rank.join()
    array = np.ones(1000, np.float32)
    calls = []
    if rank.rank == 1:
        signal.signal(signal.SIGINT, lambda *_: calls.append(threading.current_thread() is threading.main_thread()))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        time.sleep(1)
    group.all_reduce(array)
    return sum(calls), float(array[0])


def test_a_handler_that_returns_disturbs_nothing() -> None:
    with Processes(handled, 2) as ranks:
        assert ranks.finish() == [(0, 2.0), (1, 2.0)]

"""Ranks that the scheduler has put on one CPU of several: who waits there lets the other one come; one of them goes."""

from __future__ import annotations

import ctypes
import os
import resource
import time

import numpy as np
import pytest

from tests.csrc.runtime.harness import Rank, run_as_processes

pytestmark = pytest.mark.alone  # who else computes decides how often these ranks sleep

CALLS = 50
ATTEMPTS = 600
"""At most. Other processes of this machine may take the CPUs from both for long: then they sleep, as they should."""
FEW = CALLS // 10


def least_sleeps(rank: Rank) -> int:
    """Of all attempts until both ranks slept FEW times or less: how often this rank slept in CALLS calls."""
    group = rank.join()
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    data, awake = np.ones(2, np.float32), np.zeros(1, np.int32)
    least = CALLS
    for _ in range(ATTEMPTS):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for _ in range(CALLS):
            data[:] = 1
            group.all_reduce(data)
            assert (data == group.size).all()
        least = min(least, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before)
        awake[0] = least <= FEW
        group.all_reduce(awake)
        if awake[0] == group.size:
            break
    group.shutdown()
    return least


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only: ranks know that they share it")
def test_ranks_on_one_cpu_do_not_sleep_for_each_other() -> None:
    """Who spins keeps the other one from the CPU until he sleeps: one of two calls, then, ends so on each rank."""
    assert max(run_as_processes(least_sleeps, 2)) <= FEW


ENOUGH = 10
"""Attempts. In the time that one takes, the scheduler by itself parts few: it balances every some milliseconds."""
LATE = 0.02
"""Seconds by which each rank comes late before an attempt, so that the other one sleeps. Each move soon after another
one doubles the time until the next; a sleep ends that (relocation.hpp)."""


def parted(rank: Rank) -> tuple[int, bool]:
    """In how many attempts ranks that were put on one CPU had left each other after CALLS calls; and whether this one
    may still run wherever it might."""
    group = rank.join()
    everywhere, here = os.sched_getaffinity(0), ctypes.CDLL(None).sched_getcpu
    data, cpus = np.ones(2, np.float32), np.zeros(group.size, np.int32)  # those of both ranks
    apart, kept = 0, True
    for _ in range(ATTEMPTS):
        for late in range(group.size):
            if late == rank.rank:
                time.sleep(LATE)
            group.all_reduce(data)
        os.sched_setaffinity(0, {min(everywhere)})
        group.all_reduce(data)
        os.sched_setaffinity(0, everywhere)
        for _ in range(CALLS):
            group.all_reduce(data)
        cpus[:] = 0
        cpus[rank.rank] = here()
        group.all_reduce(cpus)
        kept = kept and os.sched_getaffinity(0) == everywhere
        apart += len(set(cpus.tolist())) == group.size
        if apart == ENOUGH:
            break
    group.shutdown()
    return apart, kept


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other CPU")
def test_ranks_on_one_cpu_leave_each_other() -> None:
    assert run_as_processes(parted, 2) == [(ENOUGH, True)] * 2

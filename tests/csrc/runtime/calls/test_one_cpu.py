"""Ranks that the scheduler has put on one CPU, though there are others: who waits there lets the other one come."""

from __future__ import annotations

import os
import resource

import numpy as np
import pytest

from tests.csrc.runtime.harness import Rank, run_as_processes

CALLS = 50
ATTEMPTS = 60
"""Other processes of this machine may take the CPU from both for long: then they sleep, as they should."""


def least_sleeps(rank: Rank) -> int:
    """Of all attempts: how often this rank slept in CALLS calls."""
    group = rank.join()
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    data = np.ones(2, np.float32)
    sleeps = []
    for _ in range(ATTEMPTS):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for _ in range(CALLS):
            data[:] = 1
            group.all_reduce(data)
            assert (data == group.size).all()
        sleeps.append(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before)
    group.shutdown()
    return min(sleeps)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only: ranks know that they share it")
def test_ranks_on_one_cpu_do_not_sleep_for_each_other() -> None:
    """Who spins keeps the other one from the CPU until he sleeps: one of two calls, then, ends so on each rank."""
    assert max(run_as_processes(least_sleeps, 2)) < CALLS // 10

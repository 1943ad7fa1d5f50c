"""Peers sum into each other's outputs (one_host/reference_steps.cpp); one that wakes late writes nothing there."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.harness import Rank, run_as_processes

BYTES = 64 << 20
CALLS = 24  # after which the fastest way is known
ATTEMPTS = 8
MINE = 77


def shared(address: int) -> bool:
    """Whether the memory at an address of this process is what peers can map."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split(" ", 1)[0].split("-"))
        if begin <= address < end:
            return "syntony-buffer" in line
    raise AssertionError(f"nothing is mapped at {address:x}")


def stopped_in_the_midst(rank: Rank, delay: float) -> bool:
    """Rank 0 stops rank 1 in a call, gives up, and uses its buffer again. Whether its output moved to other pages."""
    processes = [int(word) for word in rank.all_say("process", str(os.getpid()).encode())]
    group = rank.join(timeout=1.0)
    memory = _core.allocate(BYTES)
    data = memory.view(np.int32)
    for _ in range(CALLS):
        data[:] = 1
        group.all_reduce(data)
    assert (data == 2).all()
    rank.meet("the last call")
    if rank.rank == 1:
        with contextlib.suppress(_core.CommunicationError):
            group.all_reduce(data)
        return False
    work = group.all_reduce(data, async_op=True)
    assert work is not None
    time.sleep(delay)
    os.kill(processes[1], signal.SIGSTOP)
    try:
        with contextlib.suppress(_core.CommunicationError):  # unless the call was over
            work.wait()
        data[:] = MINE
    finally:
        os.kill(processes[1], signal.SIGCONT)
    time.sleep(0.3)  # rank 1 goes on where it was
    assert (data == MINE).all(), "a late peer has written into memory that is in use again"
    return not shared(memory.ctypes.data)


def test_a_late_peer_does_not_write_into_a_reused_output() -> None:
    rng = generator("late writers")
    for _ in range(ATTEMPTS):
        if run_as_processes(stopped_in_the_midst, 2, float(rng.uniform(0.0005, 0.0025)))[0]:
            return
    pytest.skip(f"in none of {ATTEMPTS} attempts were peers writing into outputs")

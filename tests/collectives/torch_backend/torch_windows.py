"""torch's one-sided windows between two processes (torch 2.15): put, signal, wait_signal, map_remote_tensor.

torch_windows.py [--measure]
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

dist.init_process_group("syntony", timeout=timedelta(seconds=20))
rank, size = dist.get_rank(), dist.get_world_size()
other = (rank + 1) % size
group: Any = dist.group.WORLD
backend = group._get_backend(torch.device("cpu"))


def empty(elements: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return backend.allocate_tensor(elements, dtype=dtype, device=torch.device("cpu"))


def put_and_signal() -> None:
    memory = empty(1000)
    window = dist._new_window(memory)
    assert dist._supports_window()
    assert window.get_attr(other).access_type == c10d.WindowAccessType.UNIFIED
    for turn in range(300):
        window.put(torch.full((10,), 100.0 * turn + rank), other, 10 * (turn % 100), False)
        window.signal(other, False)
        window.wait_signal(other, False)
        assert memory[10 * (turn % 100)] == 100.0 * turn + other
        window.signal(other, False)  # it may be overwritten
        window.wait_signal(other, False)
    # Asynchronous waits take the signals in the order of their calls.
    waits = [window.wait_signal(other, True) for _ in range(3)]
    dist.barrier()
    assert not waits[0].is_completed()
    dist.barrier()
    for _ in waits:
        window.signal(other, True).wait()
    for wait in reversed(waits):
        assert wait.wait()
    dist.barrier()


def remote_memory() -> None:
    memory = empty(6 * (rank + 1), torch.int32).fill_(rank)
    window = dist._new_window()
    with pytest.raises(RuntimeError, match="has no tensor; call tensor_register"):
        window.signal(other, False)
    window.tensor_register(memory)
    theirs = window.map_remote_tensor(other)
    assert theirs.shape == (6 * (other + 1),)
    dist.barrier()
    assert theirs.eq(other).all()
    dist.barrier()
    theirs[0] = 77
    dist.barrier()
    assert memory[0] == 77
    window.tensor_deregister()
    del window
    assert theirs[1] == other  # lives as long as somebody holds it
    dist.barrier()


def a_part_of_a_tensor() -> None:
    whole = empty(64).zero_()
    window = dist._new_window(whole[16:48].view(4, 8))
    assert window.map_remote_tensor(other).shape == (4, 8)
    window.put(torch.ones(8), other, 24, False)
    dist.barrier()
    assert whole.nonzero().flatten().tolist() == list(range(40, 48))
    dist.barrier()


def refusals() -> None:
    ordinary = torch.zeros(8) if rank == 1 else empty(8)
    with pytest.raises(RuntimeError, match=r"no window: rank 1 brought memory .* allocate_tensor"):
        dist._new_window(ordinary)
    window = dist._new_window(empty(8))
    with pytest.raises(RuntimeError, match=r"put of 12 bytes at byte 24 ends beyond the 32 bytes that rank \d has"):
        window.put(torch.zeros(3), other, 6, False)
    with pytest.raises(RuntimeError, match="put needs a tensor of Float"):
        window.put(torch.zeros(3, dtype=torch.int64), other, 0, False)
    with pytest.raises(RuntimeError, match="invalid rank 9 in a window of 2 ranks"):
        window.signal(9, False)
    with pytest.raises(RuntimeError, match="this window has a tensor"):
        window.tensor_register(empty(8))
    fresh = dist._new_window()
    with pytest.raises(RuntimeError, match="needs a contiguous tensor on the CPU"):
        fresh.tensor_register(empty(8).view(2, 4).t())
    options = c10d.WaitSignalOptions()
    options.timeout = timedelta(milliseconds=100)
    with pytest.raises(
        dist.DistBackendError, match=rf"\[rank {rank}\] signal of rank {other} .* timed out after 100 ms"
    ):
        window.wait_signal(other, False, options)
    dist.barrier()


def a_dead_peer_is_named() -> None:
    """The last case: rank 1 ends."""
    window = dist._new_window(empty(8))
    if rank == 1:
        os._exit(0)
    started = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"rank 1"):
        window.wait_signal(1, False)
    assert time.monotonic() - started < 15


def measure() -> None:
    """Medians of microseconds: put and signal of 64 KiB, against torch's copy_ and memmove into the same memory."""
    import ctypes
    import statistics

    memory = empty(16384)
    window = dist._new_window(memory)
    source = torch.ones(16384)
    theirs = window.map_remote_tensor(other)

    def timed(call: Callable[[], object]) -> float:
        times = []
        for _ in range(2000):
            started = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - started)
        return statistics.median(times) / 1e3

    def put() -> None:
        window.put(source, other, 0, False)
        window.signal(other, False)

    if rank == 0:
        memmove = timed(lambda: ctypes.memmove(theirs.data_ptr(), source.data_ptr(), 65536))
        copied, both = timed(lambda: theirs.copy_(source)), timed(put)
        print(f"64 KiB: put + signal {both:.2f} us, copy_ {copied:.2f}, memmove {memmove:.2f}", flush=True)
    dist.barrier()


if "--measure" in sys.argv:
    measure()
    dist.destroy_process_group()
else:
    for case in (put_and_signal, remote_memory, a_part_of_a_tensor, refusals, a_dead_peer_is_named):
        case()
        if rank == 0:
            print(case.__name__, flush=True)
    os._exit(0)

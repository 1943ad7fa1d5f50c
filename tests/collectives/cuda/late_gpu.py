"""In the place of syntony._cuda, a late GPU: its memory is the host's, and its streams are threads that do their
work milliseconds after they were told to.

What does not wait for an event reads what was there before. A kernel is the CPU's run of the very Program, on a group
of its own; what a GPU could not take of it, syntony._cuda says (`lowered`).
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from syntony import _core
from tests.csrc.program_interpreter import ends, starts

LATE = 0.004
"""Seconds before each task of a stream; what computes takes some times as long."""


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle, self._tasks = handle, queue.SimpleQueue[Callable[[], object]]()
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        while True:
            task = self._tasks.get()
            time.sleep(LATE)
            task()

    def put(self, task: Callable[[], object]) -> None:
        self._tasks.put(task)

    def synchronize(self) -> None:
        over = threading.Event()
        self.put(over.set)
        assert over.wait(60)


class Event:
    def __init__(self, gpu: LateGpu) -> None:
        self._gpu, self._over = gpu, threading.Event()
        self._over.set()

    def record(self, stream: int) -> None:
        self._over = threading.Event()
        self._gpu.streams[stream].put(self._over.set)

    def precede(self, stream: int) -> None:
        self._gpu.streams[stream].put(self._over.wait)

    @property
    def done(self) -> bool:
        return self._over.is_set()

    def synchronize(self) -> None:
        assert self._over.wait(60)


class Array:
    """On that GPU, at a stream, or at none that it tells."""

    def __init__(self, gpu: LateGpu, size: int, dtype: str = "int32", stream: Stream | None = None) -> None:
        self.dtype, self.values = np.dtype(dtype), np.full(size, 99, dtype)
        self._stream = gpu.streams[0] if stream is None else stream
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": self.dtype.str, "data": (self.values.ctypes.data, False),
            "version": 3, "strides": None, "stream": None if stream is None else stream.handle,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __itruediv__(self, ranks: int) -> Array:
        self._stream.put(lambda: np.divide(self.values, ranks, out=self.values))
        return self

    def become(self, values: Any) -> Array:
        """What the stream computes before the call."""

        def compute() -> None:
            time.sleep(12 * LATE)
            self.values[:] = values

        self._stream.put(compute)
        return self

    def seen(self) -> list[np.ndarray]:
        """What the stream finds when it has come here; one array, once it has."""
        found: list[np.ndarray] = []
        self._stream.put(lambda: found.append(self.values.copy()))
        return found


class Memory:
    def __init__(self, size: int) -> None:
        self._bytes = np.full(max(size, 1), 0xA5, np.uint8)
        self.address = self._bytes.ctypes.data

    def __del__(self) -> None:
        self._bytes[:] = 0x5A  # who comes too late shall see it


class Plan:
    def __init__(self, executor: Executor, program: Any, dtype: str, op: str, elements: Any, **options: Any) -> None:
        self.program, self.dtype, self.op, self.elements = program, dtype, op, elements
        where, rank = (program.collective, program.ranks, program.root), executor.rank
        self.bases = [
            (rank, space, block)
            for block in range(len(elements))
            for space, has in enumerate((starts, ends))
            if has(*where, rank, block)
        ]


class Executor:
    """One rank's; launches follow each other, also across streams."""

    def __init__(self, gpu: LateGpu, rank: int) -> None:
        self._gpu, self.rank, self.arena, self.blocks = gpu, rank, 1000 + rank, 16
        self._last = Event(gpu)
        self.launched: list[Plan] = []

    def launch(self, plan: Plan, pointers: list[int], stream: int) -> None:
        blocks = [[0, 0, size] for size in plan.elements]
        for (_, space, block), pointer in zip(plan.bases, pointers, strict=True):
            blocks[block][space] = pointer
        for source, target, size in blocks:
            if source and target and size:
                assert plan.program.in_place if source == target else plan.program.out_of_place, "not proven for it"
        self._last.precede(stream)
        self._gpu.streams[stream].put(lambda: self._run(plan, blocks))
        self._last.record(stream)
        self.launched.append(plan)

    def _run(self, plan: Plan, blocks: list[list[int]]) -> None:
        assert self._gpu.may_compute.wait(60)
        time.sleep(5 * LATE)
        group, name = self._gpu.kernels[self.rank], f"{plan.program.hash}"
        group.add_program(name, plan.program)
        where = {"collective": plan.program.collective, "root": plan.program.root, "algorithm": name}
        group.run(**where, dtype=plan.dtype, op=plan.op, blocks=[tuple(row) for row in blocks], even=False)

    def connect(self, arenas: list[int]) -> None: ...
    def set_timeout(self, seconds: float) -> None: ...
    def abort(self) -> None: ...
    def trouble(self) -> None: ...

    def wait(self) -> None:
        self._last.synchronize()


class LateGpu:
    """As the module. `kernels`: by rank, the group on which that rank's kernels run."""

    def __init__(self) -> None:
        self.kernels: dict[int, _core.Communicator] = {}
        self.ranks: dict[int, Executor] = {}
        self.may_compute = threading.Event()
        self.may_compute.set()
        self.captures = False
        self.broken = False  # copies fail
        self._numbers = itertools.count(1)
        self.streams = {0: Stream(0)}

    def Stream(self, device: int) -> Stream:  # noqa: N802
        number = next(self._numbers)
        self.streams[number] = Stream(number)
        return self.streams[number]

    def Event(self, device: int) -> Event:  # noqa: N802
        return Event(self)

    def Memory(self, device: int, size: int) -> Memory:  # noqa: N802
        return Memory(size)

    def PinnedMemory(self, size: int) -> Memory:  # noqa: N802
        return Memory(size)

    def ArenaShape(self, ranks: int, **shape: int) -> Any:  # noqa: N802
        from syntony import _cuda

        return _cuda.ArenaShape(ranks, **shape)

    def Executor(self, device: int, rank: int, shape: Any, sharing: int) -> Executor:  # noqa: N802
        self.ranks[rank] = Executor(self, rank)
        return self.ranks[rank]

    Plan = Plan

    def lowered(self, *arguments: Any) -> Any:
        from syntony import _cuda

        return _cuda.lowered(*arguments)

    def describe(self, device: int) -> dict[str, str]:
        return {"pci": "0000:00:00.0"}

    def capturing(self, device: int, stream: int) -> bool:
        return self.captures

    def copy(self, device: int, to: int, from_: int, size: int, stream: int) -> None:
        if self.broken:
            raise RuntimeError("copying between a GPU and the host failed: unspecified launch failure")
        self.streams[stream].put(lambda: ctypes.memmove(to, from_, size))

"""syntony._cuda without a GPU, for ranks that are threads: memory is the host's, a launch is arithmetic of NumPy.

Programs, lowering and the pointers that a launch wants are the real ones, so a buffer handed over wrongly gives a wrong
result here too. A launch returns when all ranks have come; it is then done.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.program_interpreter import ends, starts

_cuda = pytest.importorskip("syntony._cuda", reason="the CUDA executor was not built here: there is no nvcc")
_SUMS: dict[str, Callable[..., Any]] = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}


class Memory:
    def __init__(self, device: int, size: int) -> None:
        del device
        self._bytes = np.zeros(max(size, 1), np.uint8)
        self.address = self._bytes.ctypes.data

    def write(self, data: bytes, offset: int = 0) -> None:
        self._bytes[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, size: int, offset: int = 0) -> bytes:
        return self._bytes[offset : offset + size].tobytes()

    def copy_from(self, other: Memory, stream: Stream) -> None:
        stream.do(lambda: self.write(other.read(other._bytes.size)))


class Stream:
    def __init__(self, device: int) -> None:
        del device
        self.handle = id(self)
        self.captured: list[Callable[[], None]] | None = None
        STREAMS[self.handle] = self

    def do(self, work: Callable[[], None]) -> None:
        if self.captured is None:
            work()
        else:
            self.captured.append(work)

    def synchronize(self) -> None:
        """Everything is done already."""

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Graph:
        assert self.captured is not None
        graph, self.captured = Graph(self.captured), None
        return graph


STREAMS: dict[int, Stream] = {}


class Graph:
    def __init__(self, works: list[Callable[[], None]]) -> None:
        self.works = works

    def launch(self, stream: Stream) -> None:
        for work in self.works:
            stream.do(work)


class Event:
    def __init__(self, device: int) -> None:
        del device
        self.at = 0

    def record(self, stream: Stream) -> None:
        del stream
        self.at = time.perf_counter_ns()

    def seconds_since(self, earlier: Event) -> float:
        return (self.at - earlier.at) * 1e-9


class Plan:
    def __init__(self, executor: Any, program: Any, dtype: str, op: str, elements: list[int], **options: Any) -> None:
        found = _cuda.lowered(program, executor.rank, dtype, op, elements, executor.shape, blocks=8, **options)
        self.bases = found["bases"]
        self.program, self.dtype, self.op, self.elements = program, np.dtype(dtype), op, elements
        self.scratch = 0


class HostCuda:
    """Of a group of threads. `faulty`: rank 1 gets its last byte wrong; `gpus`: so many, dealt round; `switches`: they
    can join multicast objects."""

    ArenaShape, pull, pull_two_shot = _cuda.ArenaShape, staticmethod(_cuda.pull), staticmethod(_cuda.pull_two_shot)
    Memory, Stream, Event, Plan, Graph = Memory, Stream, Event, Plan, Graph
    SwitchedShape, check_switched = _cuda.SwitchedShape, staticmethod(_cuda.check_switched)

    def __init__(self, ranks: int, gpus: int = 1, faulty: bool = False, switches: bool = False) -> None:
        self.ranks, self.gpus, self.faulty, self.switches = ranks, gpus, faulty, switches
        self.barrier = threading.Barrier(ranks)
        self.launched: list[tuple[Plan, list[int]] | None] = [None] * ranks
        self.joined: set[int] = set()
        self.bound: set[int] = set()

    def device_count(self) -> int:
        return self.gpus

    def describe(self, device: int) -> dict[str, Any]:
        return {
            "name": "Host GPU", "pci": f"0000:0{device}:00.0", "architecture": "9.0", "processors": 4,
            "memory": 1 << 33, "multicast": self.switches, "driver": 13000, "runtime": 13010,
        }  # fmt: skip

    def use(self, device: int) -> None:
        assert device < self.gpus

    def export_memory(self, address: int) -> bytes:
        return address.to_bytes(8, "little")

    def Executor(self, device: int, rank: int, shape: Any, sharing: int) -> Executor:  # noqa: N802
        assert sharing == -(-(self.ranks - device) // self.gpus)
        return Executor(self, rank, shape)

    def Multicast(self, device: int, ranks: int, size: int, exported: bytes = b"") -> Multicast:  # noqa: N802
        assert (device == 0) == (exported == b"")
        assert exported in (b"", b"the object")
        assert (ranks, size > 0) == (self.ranks, True)
        return Multicast(self, device)

    def SwitchedGroup(self, multicast: Multicast, rank: int, shape: Any) -> Switched:  # noqa: N802
        assert self.bound == set(range(self.ranks)), "all bind before one begins"
        return Switched(Executor(self, rank, _cuda.ArenaShape(self.ranks)))


class Multicast:
    def __init__(self, cuda: HostCuda, device: int) -> None:
        self.cuda, self.device = cuda, device

    def exported(self) -> bytes:
        return b"the object"

    def join(self) -> None:
        self.cuda.joined.add(self.device)

    def bind(self) -> None:
        assert self.cuda.joined == set(range(self.cuda.ranks)), "all join before one binds"
        self.cuda.bound.add(self.device)


class Switched:
    """What a Program of the same collective would do to the buffers of this rank."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def set_timeout(self, seconds: float) -> None:
        assert seconds > 0

    def trouble(self) -> None:
        return None

    def launch(self, collective: str, dtype: str, op: str, send: int, recv: int, elements: int, stream: int) -> None:
        executor, ranks = self.executor, self.executor.cuda.ranks
        sizes = [elements] * (1 if collective == "all_reduce" else ranks)
        plan = Plan(executor, _core.build("direct", collective, ranks), dtype, op, sizes)
        step = elements * np.dtype(dtype).itemsize
        blocks = {"all_gather": (0, step), "reduce_scatter": (step, 0)}.get(collective, (0, 0))
        pointers = [(send, recv)[space] + block * blocks[space] if space < 2 else 0 for _, space, block in plan.bases]
        executor.launch(plan, pointers, stream)


class Executor:
    def __init__(self, cuda: HostCuda, rank: int, shape: Any) -> None:
        self.cuda, self.rank, self.shape = cuda, rank, shape
        self._arena = Memory(0, 64)
        self.arena = self._arena.address

    def connect(self, arenas: list[int]) -> None:
        assert len(set(arenas)) == self.cuda.ranks
        assert arenas[self.rank] == self.arena

    def set_timeout(self, seconds: float) -> None:
        assert seconds > 0

    def trouble(self) -> None:
        return None

    def launch(self, plan: Plan, pointers: list[int], stream: int) -> None:
        assert len(pointers) == len(plan.bases)
        STREAMS[stream].do(lambda: self._run(plan, pointers))

    def _run(self, plan: Plan, pointers: list[int]) -> None:
        cuda = self.cuda
        cuda.launched[self.rank] = (plan, pointers)
        if cuda.barrier.wait(60) == 0:
            self._move_everything()
        cuda.barrier.wait(60)

    def _move_everything(self) -> None:
        where: dict[tuple[int, int, int], int] = {}
        for launched in self.cuda.launched:
            assert launched is not None
            plan, pointers = launched
            for base, pointer in zip(plan.bases, pointers, strict=True):
                assert where.setdefault(base, pointer) == pointer or base[1] == 2, "ranks disagree about an address"
        program = plan.program
        about = (program.collective, program.ranks, program.root)
        results = []
        for block, count in enumerate(plan.elements):
            parts = [
                _view(where[rank, 0, block], count, plan.dtype)
                for rank in range(program.ranks)
                if starts(*about, rank, block) and (rank, 0, block) in where
            ]
            whole = parts[0].copy()
            for other in parts[1:]:
                whole = _SUMS[plan.op](whole, other)
            results.append(whole)
        for block, whole in enumerate(results):
            for rank in range(program.ranks):
                if ends(*about, rank, block) and (rank, 1, block) in where:
                    to = _view(where[rank, 1, block], whole.size, plan.dtype)
                    to[:] = whole
                    if self.cuda.faulty and rank == 1 and whole.size:
                        to.view(np.uint8)[-1] ^= 1


def _view(address: int, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)

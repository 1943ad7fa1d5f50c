"""One rank's GPU and what is measured there: its stream, memory that peers reach, times by CUDA events.

host      send | recv     what Memory fills and compares
            │ hand_over   ▲ take_back
GPU       send | recv     what contenders read and write; peers reach it by address, or by CUDA IPC
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.bench.elements import Array
from syntony.benchmarks.bench.measurement import Case, Memory, places
from syntony.collectives.bootstrap.launch import Exchange


def executor() -> Any:
    """syntony._cuda. Raises UserError where it was not built."""
    try:
        from syntony import _cuda
    except ImportError:
        raise UserError("--device cuda needs the CUDA executor, which was not built here: there was no nvcc") from None
    return _cuda


@dataclass
class Gpu:
    """One rank's. `cuda` is syntony._cuda, or what the tests have in its place."""

    cuda: Any
    exchange: Exchange
    number: int
    facts: dict[str, Any]
    sharing: tuple[int, ...]
    """The ranks on this GPU, this one among them."""
    stream: Any
    checks: list[Callable[[], None]] = field(default_factory=list)
    """What raises when a launch has gone wrong."""
    meetings: int = 0

    @staticmethod
    def of(exchange: Exchange, cuda: Any) -> Gpu:
        """The rank's GPU: one each where there are as many, else they are shared. Collective.

        Raises UserError, at all ranks, where there is no GPU or where ranks are on several hosts.
        """
        count = int(cuda.device_count())
        mine = {"host": socket.gethostname(), "count": count}
        told = [json.loads(blob) for blob in exchange.all_gather("gpus", json.dumps(mine).encode())]
        hosts = sorted({said["host"] for said in told})
        if len(hosts) > 1:
            raise UserError(f"--device cuda runs on one host, and these ranks are on {', '.join(hosts)}")
        if not all(said["count"] for said in told):
            raise UserError("--device cuda needs a CUDA GPU and its driver; there is none here")
        number = exchange.rank % count
        facts = dict(cuda.describe(number))
        buses = [blob.decode() for blob in exchange.all_gather("gpu buses", facts["pci"].encode())]
        sharing = tuple(rank for rank, bus in enumerate(buses) if bus == facts["pci"])
        return Gpu(cuda, exchange, number, facts, sharing, cuda.Stream(number))

    def gather(self, value: object) -> list[Any]:
        """Everybody's JSON value, in rank order."""
        self.meetings += 1
        blobs = self.exchange.all_gather(f"gpu {self.meetings}", json.dumps(value).encode())
        return [json.loads(blob) for blob in blobs]

    def meet(self) -> None:
        """Returns when all ranks have come, and this rank's stream has run dry."""
        self.finish()
        self.gather(None)

    def finish(self) -> None:
        """Waits for the stream. Raises RankError when a launch has gone wrong."""
        self.stream.synchronize()
        for check in self.checks:
            check()

    def reach(self, address: int) -> tuple[list[int], list[Any]]:
        """Where this process finds every rank's memory, whose own `address` each brings; and what keeps it open.

        Collective.
        """
        exported = self.cuda.export_memory(address).hex()
        told = self.gather({"pid": os.getpid(), "address": address, "exported": exported})
        addresses, kept = [], []
        for said in told:
            if said["pid"] == os.getpid():
                addresses.append(int(said["address"]))
                continue
            kept.append(self.cuda.ImportedMemory(self.number, bytes.fromhex(said["exported"])))
            addresses.append(int(kept[-1].address))
        return addresses, kept


class GpuMemory(Memory):
    """The bench's buffers on a GPU, with a mirror on the host."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.exchange.rank, gpu.exchange.size)
        self._gpu = gpu
        self._there: list[Any] = [None, None]
        self._addresses: list[list[int]] = [[], []]  # by side and rank
        self._kept: list[list[Any]] = [[], []]

    def allocate(self, side: int, size: int) -> Array:
        """Collective. Nobody frees what a peer has open, or while a peer's kernel may be waiting for this rank's."""
        self._kept[side].clear()
        self._gpu.meet()
        self._there[side] = None
        self._there[side] = self._gpu.cuda.Memory(self._gpu.number, size)
        self._addresses[side], self._kept[side] = self._gpu.reach(self._there[side].address)
        return super().allocate(side, size)

    def hand_over(self) -> None:
        for there, here in zip(self._there, self._sides, strict=True):
            there.write(here.tobytes())

    def take_back(self) -> None:
        self._gpu.finish()
        for there, here in zip(self._there, self._sides, strict=True):
            here[:] = np.frombuffer(there.read(here.size), np.uint8)

    def addresses(self, test: Test) -> tuple[int, int]:
        """Of this rank's buffers."""
        send, recv = (self._at(self.rank, place.side, place.begin, test) for place in places_of(test, self.rank, self))
        return send, recv

    def block(self, test: Test, rank: int, space: int, block: int) -> int:
        """The address of a block of a Program on a rank: of its input (space 0) or output (1)."""
        place = places_of(test, rank, self)[space]
        has_many = (test.shape.sends_blocks, test.shape.receives_blocks)[space]
        if test.shape.name == "all_to_all":  # blocks are pairs: source * ranks + destination
            block = (block % self.ranks, block // self.ranks)[space]
        begin = place.begin + (block * block_of(test, self.ranks) if has_many else 0)
        return self._at(rank, place.side, begin, test)

    def _at(self, rank: int, side: int, begin: int, test: Test) -> int:
        return self._addresses[side][rank] + begin * test.element.item_bytes


def block_of(test: Test, ranks: int) -> int:
    """Elements of a block."""
    return int(test.send.size) // (ranks if test.shape.sends_blocks else 1)


def places_of(test: Test, rank: int, memory: Memory) -> Sequence[Any]:
    """Where a rank's send and receive buffer lie in its memory."""
    case = Case(test.shape, test.element, test.operation, test.root, block_of(test, memory.ranks))
    return places(case, test.in_place, rank, memory.ranks)


class EventTimer:
    """Times on the GPU itself: an event before and behind each call; or behind whole replays of a captured graph."""

    def __init__(self, gpu: Gpu, replays: int) -> None:
        """`replays`: of a graph that holds all calls of a lap; 0: no graph."""
        self._gpu, self._replays = gpu, replays

    def __call__(self, call: Call, iterations: int) -> list[int]:
        stream = self._gpu.stream
        if self._replays == 0:
            return self._times([call] * iterations)
        stream.begin_capture()
        for _ in range(iterations):
            call()
        graph = stream.end_capture()
        graph.launch(stream)  # the first replay brings the graph to the GPU
        self._gpu.meet()
        times = self._times([lambda: graph.launch(stream)] * self._replays)
        return [time // iterations for time in times for _ in range(iterations)]

    def _times(self, calls: Sequence[Call]) -> list[int]:
        gpu = self._gpu
        events = [gpu.cuda.Event(gpu.number) for _ in range(len(calls) + 1)]
        events[0].record(gpu.stream.handle)
        for call, event in zip(calls, events[1:], strict=True):
            call()
            event.record(gpu.stream.handle)
        gpu.finish()
        return [round(after.seconds_since(before) * 1e9) for before, after in pairwise(events)]

"""Several ranks on one GPU, against the memory that they share.

Every rank has a stream and its share of the GPU's processors. What a collective must read and write, divided by what
the same GPU moves in a large copy (read + write, measured in the same run), is the least time there is:

    all_reduce, all_to_all       2 p S / copy        every rank reads S bytes and writes S
    all_gather, reduce_scatter   (p + 1) S / copy    every rank reads or writes S, and the other way S / p

with S the size of the total buffer, as in nccl-tests. Times are those of CUDA events round replayed graphs that hold
`TURNS` launches each. Results are compared with NumPy before a time is taken. Nothing here says anything about NVLink.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

TURNS = 20  # launches in a graph
REPEATS = 7  # of the graph; the median counts


@dataclass(frozen=True)
class Case:
    """One row: `bytes` is the total buffer of a rank."""

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    protocol: str = "simple"


@dataclass(frozen=True)
class Result:
    case: Case
    seconds: float
    limit: float  # seconds that the memory alone takes

    @property
    def fraction(self) -> float:
        return self.limit / self.seconds


class OneGpu:
    """Virtual ranks on GPU 0."""

    def __init__(self, ranks: int) -> None:
        from csrc import _cuda

        self.cuda: Any = _cuda
        self.ranks = ranks
        shape = _cuda.ArenaShape(ranks)
        self.executors = [_cuda.Executor(0, rank, shape, ranks) for rank in range(ranks)]
        for executor in self.executors:
            executor.connect([each.arena for each in self.executors])
            executor.set_timeout(30.0)
        self.streams = [_cuda.Stream(0) for _ in range(ranks)]

    def program(self, case: Case) -> Any:
        from csrc import _core

        if case.algorithm == "pull":
            return self.cuda.pull(case.collective, self.ranks)
        if case.algorithm == "pull_two_shot":
            return self.cuda.pull_two_shot(self.ranks)
        return _core.build(case.algorithm, case.collective, self.ranks)

    def measure(self, case: Case, copy_rate: float) -> Result:
        ranks, count = self.ranks, case.bytes // 4
        part = count // ranks
        program = self.program(case)
        sizes = {"all_reduce": [count], "all_to_all": [part] * ranks * ranks}.get(case.collective, [part] * ranks)
        given = part if case.collective == "all_gather" else count
        kept = part if case.collective == "reduce_scatter" else count
        inputs = [self.cuda.Memory(0, given * 4) for _ in range(ranks)]
        outputs = [self.cuda.Memory(0, kept * 4) for _ in range(ranks)]
        data = [(np.arange(given, dtype=np.int32) % 1009 + 7 * rank) for rank in range(ranks)]
        for memory, values in zip(inputs, data, strict=True):
            memory.write(values.tobytes())

        def address(rank: int, space: int, block: int) -> int:
            if space == 2:
                return int(plans[rank].scratch)
            whole = case.collective == "all_reduce"
            one = case.collective == ("all_gather" if space == 0 else "reduce_scatter")
            if case.collective == "all_to_all":
                block = block % ranks if space == 0 else block // ranks
            memory = (inputs, outputs)[space][rank]
            return int(memory.address) + (0 if whole or one else block * part * 4)

        plans = [
            self.cuda.Plan(each, program, "int32", "sum", sizes, protocol=case.protocol) for each in self.executors
        ]
        pointers = [[address(*base) for base in plan.bases] for plan in plans]
        graph = self.captured(plans, pointers)
        graph.launch(self.streams[0])
        self.streams[0].synchronize()
        self.check(case, data, outputs)
        seconds = self.time(graph) / TURNS
        crossings = 2 * ranks if case.collective in ("all_reduce", "all_to_all") else ranks + 1
        return Result(case, seconds, crossings * case.bytes / copy_rate)

    def captured(self, plans: list[Any], pointers: list[list[int]]) -> Any:
        first, *others = self.streams
        first.begin_capture()
        for other in others:
            other.wait_for(first)
        for _ in range(TURNS):
            for rank, executor in enumerate(self.executors):
                executor.launch(plans[rank], pointers[rank], self.streams[rank].handle)
        for other in others:
            first.wait_for(other)
        return first.end_capture()

    def time(self, graph: Any) -> float:
        """Seconds of one launch of the graph."""
        times = []
        for _ in range(REPEATS):
            before, after = self.cuda.Event(0), self.cuda.Event(0)
            before.record(self.streams[0])
            graph.launch(self.streams[0])
            after.record(self.streams[0])
            self.streams[0].synchronize()
            times.append(after.seconds_since(before))
        trouble = [each.trouble() for each in self.executors]
        assert trouble == [None] * self.ranks, trouble
        return float(statistics.median(times))

    def check(self, case: Case, data: list[np.ndarray], outputs: list[Any]) -> None:
        trouble = [each.trouble() for each in self.executors]
        assert trouble == [None] * self.ranks, trouble
        part = case.bytes // 4 // self.ranks
        for rank, memory in enumerate(outputs):
            match case.collective:
                case "all_reduce":
                    wanted = np.sum(data, axis=0, dtype=np.int32)
                case "reduce_scatter":
                    wanted = np.sum([d[rank * part : (rank + 1) * part] for d in data], axis=0, dtype=np.int32)
                case "all_gather":
                    wanted = np.concatenate(data)
                case _:
                    wanted = np.concatenate([d[rank * part : (rank + 1) * part] for d in data])
            assert memory.read(wanted.nbytes) == wanted.tobytes(), f"{case} gives rank {rank} something else"


def copy_rate(size: int) -> float:
    """Bytes per second, read and written, of CUDA's own copy of `size` bytes on GPU 0."""
    from csrc import _cuda

    stream, source, target = _cuda.Stream(0), _cuda.Memory(0, size), _cuda.Memory(0, size)
    times = []
    for _ in range(REPEATS + 1):
        before, after = _cuda.Event(0), _cuda.Event(0)
        before.record(stream)
        for _ in range(TURNS):
            target.copy_from(source, stream)
        after.record(stream)
        stream.synchronize()
        times.append(after.seconds_since(before) / TURNS)
    return float(2 * size / statistics.median(times[1:]))  # the first wakes the GPU up


def results(ranks: int, sizes: list[int]) -> Iterator[Result]:
    """One-sided exchange at every size, and rings for comparison; small ones by every protocol."""
    rate = copy_rate(256 << 20)
    gpu = OneGpu(ranks)
    for size in sizes:
        algorithms = [("all_reduce", "pull_two_shot"), ("all_reduce", "pull"), ("all_reduce", "ring")]
        algorithms += [(kind, "pull") for kind in ("all_gather", "reduce_scatter", "all_to_all")]
        for collective, algorithm in algorithms:
            protocols = gpu.cuda.PROTOCOLS if size <= 1 << 20 and algorithm == "ring" else ("simple",)
            for protocol in protocols:
                yield gpu.measure(Case(collective, algorithm, ranks, size, protocol), rate)

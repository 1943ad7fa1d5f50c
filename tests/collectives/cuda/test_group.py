"""The GPU side of a group without a GPU: what it hands to an executor that only writes down, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collectives import Communicator, LocalBootstrap
from collectives.buffers import UsageError
from collectives.cuda import group as gpu
from csrc import _core


class Shown:
    """An array that says it lies on a GPU."""

    def __init__(self, count: int, dtype: str = "float32", device: int = 0, strides: Any = None) -> None:
        self.dtype, self.device, self.divided = np.dtype(dtype), device, 0
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": self.dtype.str, "data": (4096 + id(self) % 4096 * 64, False),
            "version": 3, "strides": strides,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __itruediv__(self, ranks: int) -> Shown:
        self.divided = ranks
        return self


class Recorder:
    """In the place of csrc._cuda."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, Any, list[int]]] = []
        self.connected: dict[int, list[int]] = {}
        self.trouble: Any = None

    def ArenaShape(self, ranks: int) -> int:  # noqa: N802
        return ranks

    def Executor(self, device: int, rank: int, shape: Any, sharing: int) -> Any:  # noqa: N802
        return SimpleNamespace(
            arena=1000 + rank, rank=rank, sharing=sharing, trouble=lambda: self.trouble,
            connect=lambda arenas: self.connected.__setitem__(rank, arenas), set_timeout=lambda seconds: None,
            launch=lambda plan, pointers, stream: self.launched.append((rank, plan, pointers)),
        )  # fmt: skip

    def export_memory(self, address: int) -> bytes:
        return b"handle"

    def Plan(self, executor: Any, program: Any, dtype: str, op: str, elements: list[int], protocol: str) -> Any:  # noqa: N802
        bases = [(executor.rank, 0, 0), (executor.rank, 1, 0), (executor.rank, 2, 0)]
        return SimpleNamespace(bases=bases, program=program, dtype=dtype, elements=elements, protocol=protocol, op=op)


def on_two_ranks(job: Callable[[Communicator], None]) -> list[BaseException]:
    failures: list[BaseException] = []

    def rank(bootstrap: LocalBootstrap) -> None:
        try:
            with Communicator.create(bootstrap, timeout=60.0) as group:
                job(group)
        except BaseException as failure:  # handed to the test
            failures.append(failure)

    threads = [threading.Thread(target=rank, args=(bootstrap,)) for bootstrap in LocalBootstrap.group(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(gpu, "executor", lambda: found)
    return found


def test_calls_become_launches(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        array = Shown(1000)
        address = array.__cuda_array_interface__["data"][0]
        assert group.all_reduce(array) is None
        big = Shown(1 << 20)
        group.all_reduce(big, op="avg")
        mine = [entry for entry in recorder.launched if entry[0] == group.rank]
        assert mine[0][2] == [address, address, 0]
        assert [(p.program.name, p.protocol, p.elements) for _, p, _ in mine] == [
            ("direct", "ll", [1000]), ("two_shot", "simple", [1 << 20]),
        ]  # fmt: skip
        assert (array.divided, big.divided) == (0, 2)

        reduced = Shown(8)
        group.reduce(reduced, op="avg")
        assert reduced.divided == (2 if group.rank == 0 else 0), "an input stays as it is"

    assert on_two_ranks(job) == []
    assert recorder.connected == {0: [1000, 1001], 1: [1000, 1001]}


def test_refusals(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        for call, words in (
            (lambda: group.all_reduce(Shown(8), async_op=True), "knows no async_op"),
            (lambda: group.all_reduce(Shown(8, "int32"), op="avg"), "avg of int32 is not done on GPUs"),
            (lambda: group.all_reduce(Shown(8), algorithm="pairwise2"), "'pairwise2' does not run all_reduce on GPUs"),
            (lambda: group.all_reduce(Shown(8), np.zeros(8, np.float32)), "arrays on GPU 0 and the CPU"),
            (lambda: group.all_reduce(Shown(8, strides=(8,))), "not contiguous in memory"),
            (lambda: group.send(Shown(8), 1 - group.rank), "lies on GPU 0; this call moves CPU memory"),
        ):
            with pytest.raises(UsageError, match=words):
                call()
        group.barrier()  # the executor is one for both
        recorder.trouble = {"kind": "timed_out", "lane": 1, "instruction": 2, "slice": 0, "peer": 1}
        with pytest.raises(_core.CommunicationError, match=r"was timed_out at lane 1, .*, waiting for rank 1"):
            group.all_reduce(Shown(8))

    assert on_two_ranks(job) == []


def test_without_an_executor_it_is_one_sentence_at_every_rank() -> None:
    def job(group: Communicator) -> None:
        with pytest.raises(RuntimeError, match=r"^rank 0: arrays on GPUs need (the CUDA executor|a CUDA GPU)"):
            group.all_reduce(Shown(8))

    assert on_two_ranks(job) == []

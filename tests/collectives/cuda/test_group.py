"""The GPU side of a group without a GPU: what it hands to an executor that only writes down, and what it refuses."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syntony import Communicator, _core
from syntony.collectives.cuda import forming
from syntony.collectives.cuda import group as cuda_group
from tests.collectives.ranks import on_ranks
from tests.csrc.runtime.harness import Processes, Rank, run_as_processes


class Shown:
    """An array that says it lies on a GPU."""

    def __init__(
        self, count: int, dtype: str = "float32", device: int = 0, strides: Any = None, read_only: bool = False
    ) -> None:
        self.dtype, self.device, self.divided = np.dtype(dtype), device, 0
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": self.dtype.str, "data": (4096 + id(self) % 4096 * 64, read_only),
            "version": 3, "strides": strides, "stream": 77,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __itruediv__(self, ranks: int) -> Shown:
        self.divided = ranks
        return self


class Executed:
    """In the place of syntony._cuda.Executor: it writes down, and is in trouble when told so."""

    def __init__(self, recorder: Recorder, rank: int, sharing: int) -> None:
        self.recorder, self.rank, self.sharing = recorder, rank, sharing
        self.arena, self.blocks = 1000 + rank, 100 + rank
        self.arenas: list[int] = []
        self.seconds = 0.0
        self.launched: list[tuple[Any, list[int], int]] = []
        self.found: dict[str, Any] | None = None
        self.aborted = threading.Event()

    def connect(self, arenas: list[int]) -> None:
        if self.rank == self.recorder.broken:
            raise RuntimeError("reaching the GPU of rank 0 failed")
        self.arenas = arenas

    def set_timeout(self, seconds: float) -> None:
        self.seconds = seconds

    def launch(self, plan: Any, pointers: list[int], stream: int) -> None:
        self.launched.append((plan, pointers, stream))

    def wait(self) -> None: ...

    def abort(self) -> None:
        self.aborted.set()

    def trouble(self) -> dict[str, Any] | None:
        return self.found


class Recorder:
    """In the place of syntony._cuda."""

    def __init__(self) -> None:
        self.ranks: dict[int, Executed] = {}
        self.imported: list[bytes] = []
        self.lowered_for: list[int] = []
        self.broken = -1

    def describe(self, device: int) -> dict[str, str]:
        return {"pci": f"0000:{device:02}:00.0"}

    def ArenaShape(self, ranks: int, **shape: int) -> int:  # noqa: N802
        return ranks

    def Stream(self, device: int) -> Any:  # noqa: N802
        return SimpleNamespace(handle=9)

    def capturing(self, device: int, stream: int) -> bool:
        return True

    def Executor(self, device: int, rank: int, shape: Any, sharing: int) -> Executed:  # noqa: N802
        self.ranks[rank] = Executed(self, rank, sharing)
        return self.ranks[rank]

    def export_memory(self, address: int) -> bytes:
        return b"handle of %d" % address

    def ImportedMemory(self, device: int, exported: bytes) -> Any:  # noqa: N802
        self.imported.append(exported)
        return SimpleNamespace(address=5000 + int(exported.split()[-1]))

    def lowered(self, program: Any, rank: int, dtype: str, op: str, *others: Any) -> None:
        self.lowered_for.append(rank)
        if rank == 1 and (dtype, op) == ("complex64", "product"):
            raise ValueError("rank 1 cannot multiply these")

    def Plan(self, executor: Executed, program: Any, dtype: str, op: str, elements: Any, **options: Any) -> Any:  # noqa: N802
        bases = [(executor.rank, 0, 0), (executor.rank, 1, 0), (executor.rank, 2, 0)]
        return SimpleNamespace(bases=bases, program=program, dtype=dtype, elements=elements, op=op, **options)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(forming, "executor", lambda: found)
    return found


def test_calls_become_launches(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        array = Shown(1000)
        address = array.__cuda_array_interface__["data"][0]
        assert group.all_reduce(array) is None
        big = Shown(1 << 20)
        group.all_reduce(big, op="avg", timeout=7.0)
        mine = recorder.ranks[group.rank]
        assert mine.launched[0][1:] == ([address, address, 0], 77)
        assert [(plan.program.name, plan.protocol, plan.elements) for plan, _, _ in mine.launched] == [
            ("direct", "ll", (1000,)), ("two_shot", "simple", (1 << 20,)),
        ]  # fmt: skip
        assert {plan.blocks for plan, _, _ in mine.launched} == {100}, "what the smallest GPU has"
        assert (array.divided, big.divided, mine.seconds, mine.sharing) == (0, 2, 7.0, 2)
        reduced = Shown(8)
        group.reduce(reduced, op="avg")
        assert reduced.divided == (2 if group.rank == 0 else 0), "an input stays as it is"
        assert mine.seconds == 60.0, "the group's"
        assert mine.arenas == [1000, 1001]

    on_ranks(2, job)
    assert recorder.imported == [], "within a process addresses do"


def test_threads_that_form_groups_at_once_are_one_process(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_group, "_NAMES", {})
    both = threading.Barrier(2)
    names = iter(["one", "another"])

    def token(_: int) -> str:
        both.wait(30)
        return next(names)

    monkeypatch.setattr(cuda_group.secrets, "token_hex", token)
    on_ranks(2, lambda group: group.all_reduce(Shown(8)))
    assert recorder.imported == []


def test_what_the_torch_backend_asks(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from syntony.collectives.cuda import torch_calls

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=55 + device))

    def described(op: str, dtype: str, algorithm: str = "auto") -> torch_calls.Described:
        return ("all_reduce", op, 0, [(4096, 8192, 8)], True, dtype, algorithm)

    def job(group: Communicator) -> None:
        kernels = torch_calls.form(group.capsule(), 0)
        assert kernels is not None
        assert torch_calls.takes(kernels, described("sum", "float32"), True)
        assert not torch_calls.takes(kernels, described("sum", "int32"), True), "an average is divided in floats"
        assert not torch_calls.takes(kernels, described("product", "complex64"), False), "rank 1 cannot: so nobody does"
        group.barrier()
        asked = len(recorder.lowered_for)
        assert torch_calls.takes(kernels, described("sum", "float32"), False)
        group.barrier()
        assert len(recorder.lowered_for) == asked, "it is known by now"
        group.barrier()
        torch_calls.launch(kernels, described("sum", "float32", "pairwise"), 3.0)
        (plan, pointers, stream), *_ = recorder.ranks[group.rank].launched
        assert (plan.program.name, pointers, stream) == ("pairwise", [4096, 8192, 0], 55)
        assert recorder.ranks[group.rank].seconds == 3.0
        kernels.close()

    on_ranks(2, job)


def test_torch_goes_another_way_where_one_rank_has_no_kernels(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    from syntony.collectives.cuda import torch_calls

    recorder.broken = 1

    def job(group: Communicator) -> None:
        assert torch_calls.form(group.capsule(), 0) is None

    on_ranks(2, job)


def test_a_plan_serves_all_calls_that_are_alike_and_no_other(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        for _ in range(2):
            group.all_reduce(Shown(8))
        for call in (
            lambda: group.all_reduce(Shown(9)),
            lambda: group.all_reduce(Shown(8, "int32")),
            lambda: group.all_reduce(Shown(8), op="max"),
            lambda: group.all_reduce(Shown(8), algorithm="ring"),
            lambda: group.all_gather(Shown(8), Shown(16)),
            lambda: group.all_gather(Shown(8), Shown(16), counts=[8, 8]),  # the others' may differ: another protocol
            lambda: group.broadcast(Shown(8)),
            lambda: group.broadcast(Shown(8), root=1),
        ):
            call()
        plans = [id(plan) for plan, _, _ in recorder.ranks[group.rank].launched]
        assert plans[0] == plans[1]
        assert len(set(plans)) == len(plans) - 1

    on_ranks(2, job)


def test_a_rule_for_aggregators_is_for_the_memory_of_hosts(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_ALGO", "all_reduce:in_network")
    monkeypatch.setenv("SYNTONY_AGGREGATOR", "127.0.0.1:9")  # where nobody is

    def job(group: Communicator) -> None:
        group.all_reduce(Shown(8))
        with pytest.raises(ValueError, match="aggregators add what is in the memory of hosts"):
            group.all_reduce(Shown(8), algorithm="in_network")
        assert [plan.program.name for plan, _, _ in recorder.ranks[group.rank].launched] == ["direct"]

    on_ranks(2, job)


def test_refusals(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        for call, words in (
            (lambda: group.all_reduce(Shown(8), partition=4), "takes no priority, partition or factor"),
            (lambda: group.all_reduce(Shown(8), async_op=True), "with async_op cannot be part of a graph"),
            (lambda: group.all_reduce(Shown(8, "complex64"), op="product"), "rank 1 cannot multiply these"),
            (lambda: group.all_reduce(Shown(8, "int32"), op="avg"), "avg of int32 is not done on GPUs"),
            (lambda: group.all_reduce(Shown(8), algorithm="pairwise2"), "unknown algorithm pairwise2: available are"),
            (lambda: group.all_reduce(Shown(8), np.zeros(8, np.float32)), "arrays on GPU 0 and the CPU"),
            (lambda: group.all_reduce(Shown(8, device=1)), "arrays on GPU 1; rank . uses GPU 0"),
            (lambda: group.all_reduce(Shown(8, strides=(8,))), "not contiguous in memory"),
            (lambda: group.all_reduce(Shown(8, read_only=True)), "the input of all_reduce is read-only"),
            (lambda: group.all_reduce(Shown(8), timeout=-1.0), "a timeout is a number of seconds above 0"),
            (lambda: group.send(Shown(8), 1 - group.rank), "lies on GPU 0; this call moves CPU memory"),
        ):
            with pytest.raises(ValueError, match=words):
                call()

    on_ranks(2, job)


def test_without_an_executor_it_is_one_sentence_at_every_rank() -> None:
    def job(group: Communicator) -> None:
        with pytest.raises(RuntimeError, match=r"^rank 0: arrays on GPUs need (the CUDA executor|a CUDA GPU)"):
            group.all_reduce(Shown(8))

    on_ranks(2, job)


def test_a_rank_that_cannot_reach_another_is_named_at_every_rank(recorder: Recorder) -> None:
    recorder.broken = 1

    def job(group: Communicator) -> None:
        with pytest.raises(RuntimeError, match=r"^rank 1: reaching the GPU of rank 0 failed$"):
            group.all_reduce(Shown(8))
        group.barrier()
        recorder.broken = -1
        group.barrier()
        group.all_reduce(Shown(8))  # it may be tried again

    on_ranks(2, job)


def test_who_waited_too_long_tells_all(recorder: Recorder) -> None:
    def job(group: Communicator) -> None:
        group.all_reduce(Shown(8))
        group.all_reduce(Shown(9))
        group.all_gather(Shown(8), Shown(16))
        mine = recorder.ranks[group.rank]
        group.barrier()
        words = r"^rank 0, on GPU 0: all_reduce #2 \(9 x float32\) timed out at lane 1, .*, waiting for rank 1; make"
        if group.rank == 0:
            mine.found = {"kind": "timed out", "launch": 2, "lane": 1, "instruction": 2, "slice": 0, "peer": 1}
        else:
            assert mine.aborted.wait(30)
            words = r"^rank 1, on GPU 0: all_gather #3 \(16 x float32\) was ended: .*rank 0: all_reduce #2 .* timed out"
        for _ in range(2):  # it stays so
            with pytest.raises(_core.CommunicationError, match=words) as caught:
                group.all_reduce(Shown(8))
        assert (caught.value.kind, caught.value.ranks) == (("timeout", (1,)) if group.rank == 0 else ("aborted", (0,)))

    on_ranks(2, job)


def test_close_says_what_nobody_has_heard(recorder: Recorder) -> None:
    both = threading.Barrier(2)

    def job(group: Communicator) -> None:
        group.all_reduce(Shown(8))
        group.barrier()
        if group.rank == 0:
            found = {"kind": "timed out", "launch": 1, "lane": 0, "instruction": 0, "slice": 0, "peer": 1}
            recorder.ranks[0].found = found
        both.wait(60)  # rank 0 says so when it closes, which rank 1 might hear while still in the group's barrier

    with pytest.raises(ExceptionGroup) as failed:
        on_ranks(2, job)
    first, second = sorted(map(str, failed.value.exceptions))
    assert first.startswith("rank 0, on GPU 0: all_reduce #1 (8 x float32) timed out at lane 0")
    assert second.startswith("rank 1, on GPU 0: all_reduce #1 (8 x float32) was ended")
    assert "rank 0: all_reduce #1 (8 x float32) timed out" in second


# ---- processes ------------------------------------------------------------------------------------------------------


def in_a_process(rank: Rank, one_dies: bool) -> tuple[list[int], int, list[bytes], Any]:
    recorder = Recorder()
    forming.executor = lambda: recorder
    group = Communicator(rank.join().raw)
    group.all_reduce(Shown(8))
    group.all_reduce(Shown(9))
    mine = recorder.ranks[rank.rank]
    failure = None
    if one_dies:
        rank.tell("launched")
        assert mine.aborted.wait(30), "its kernel would wait for ever"
        with pytest.raises(_core.CommunicationError) as caught:
            group.all_reduce(Shown(8))
        failure = (str(caught.value), caught.value.kind, caught.value.ranks)
    group.close()
    return mine.arenas, mine.sharing, recorder.imported, failure


def test_processes_reach_each_others_arenas() -> None:
    results = run_as_processes(in_a_process, 3, False)
    for rank, (arenas, sharing, imported, _) in enumerate(results):
        assert arenas == [1000 + peer if peer == rank else 6000 + peer for peer in range(3)]
        assert sorted(imported) == [b"handle of %d" % (1000 + peer) for peer in range(3) if peer != rank]
        assert sharing == 3


def test_a_process_that_dies_ends_the_kernels_of_all_and_is_named() -> None:
    with Processes(in_a_process, 3, True) as ranks:
        ranks.wait_for_event("launched")
        ranks.kill(1)
        results = ranks.finish()
    for rank in (0, 2):
        sentence = "rank 1 died, and all_reduce #2 (9 x float32) was the last; make the group anew"
        assert results[rank][-1] == (f"rank {rank}, on GPU 0: {sentence}", "dead", (1,))

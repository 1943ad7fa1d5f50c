"""One case each of what can go wrong with a torch group, or end.

Run by launch.py: torch_cases.py CASE[,CASE..], with an empty folder in CASE_FOLDER. Nothing collective comes before a
case that fails: a failure ends the group on every rank, also on one that is not yet out of the operation before.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from tests.collectives.torch_backend.torch_calls import synchronous_calls, timing_and_hooks

Case = Callable[[int, int], None]


def raises(sentence: str, call: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError, match=re.escape(sentence)) as caught:
        call()
    return str(caught.value)


def bad_arguments(rank: int, size: int) -> None:
    """Refused on the spot, naming rank and operation; the group goes on."""
    assert dist.group.WORLD is not None
    group: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.ones(4)
    options = dist.BroadcastOptions()
    options.rootRank = size
    text = raises("invalid root rank: 4", lambda: group.broadcast([tensor], options))
    assert f"syntony rank {rank}: broadcast: " in text
    raises("requires non-empty tensor list", lambda: group.allreduce([]))
    raises("requires a single-element tensor list", lambda: group.allreduce([tensor, tensor]))
    raises("output tensor size must be equal to world_size times", lambda: group._allgather_base(tensor, tensor))
    raises("same type as input", lambda: group._allgather_base(torch.ones(16).double(), tensor))
    raises(
        "invalid tensor type at index 1", lambda: group.allgather([[tensor, tensor.int(), tensor, tensor]], [tensor])
    )
    raises("Split sizes doesn't match", lambda: dist.all_to_all_single(tensor, tensor, [1] * size, [9, 0, 0, 0]))
    raises("only supports CPU tensors", lambda: group.allreduce([torch.ones(2, device="meta")]))
    raises("average of bool", lambda: dist.all_reduce(torch.tensor([True]), op=dist.ReduceOp.AVG))
    raises("no meaning", lambda: dist.all_reduce(tensor, op=dist.ReduceOp.BXOR))
    dist.all_reduce(tensor)
    assert tensor[0] == size


def mismatched_counts(rank: int, size: int) -> None:
    text = raises("all_reduce", lambda: dist.all_reduce(torch.ones(8 if rank == 2 else 7)))
    assert "disagree" in text, text
    assert "rank 2" in text, text
    assert "8" in text and "7" in text, text  # noqa: PT018


def mismatched_dtypes(rank: int, size: int) -> None:
    text = raises(
        "all_reduce", lambda: dist.all_reduce(torch.ones(8, dtype=torch.float64 if rank == 1 else torch.float32))
    )
    assert "float64" in text and "float32" in text and "rank 1" in text, text  # noqa: PT018


def killed(rank: int, size: int) -> None:
    """In the middle of large all_reduces rank 3 is killed: the others raise within a second and name it."""
    folder = Path(os.environ["CASE_FOLDER"])
    tensor = torch.ones(1 << 22)
    dist.all_reduce(tensor)
    if rank == 3:

        def die() -> None:
            (folder / "died").write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Timer(0.3, die).start()

    def work_on() -> None:
        while True:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    raises("rank 3", work_on)
    waited = time.time() - float((folder / "died").read_text())
    assert waited < 1.0, f"took {waited:.2f} s"
    raises("rank 3", lambda: dist.all_reduce(tensor))


def interrupted(rank: int, size: int) -> None:
    """Ctrl-C in a synchronous call: the interpreter's own exception, and the group has ended everywhere."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if rank == 1:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(torch.ones(1000))
    else:
        time.sleep(1)
    raises("rank 1 aborted group 0: a signal interrupted all_reduce #", lambda: dist.all_reduce(torch.ones(1000)))


def timeout(rank: int, size: int) -> None:
    """The rank that does not come is named."""
    if rank == 1:
        time.sleep(2)
        return
    group = dist.group.WORLD
    assert group is not None
    options = dist.BarrierOptions()
    options.timeout = timedelta(milliseconds=300)
    text = raises("rank 1", lambda: group.barrier(options).wait())
    assert "timed out" in text, text


def absent_at_creation(rank: int, size: int) -> None:
    """A rank that does not come to a new group is named when the group's timeout has passed."""
    folder = Path(os.environ["CASE_FOLDER"])
    if rank != 1:
        text = raises("did not come", lambda: dist.new_group(timeout=timedelta(seconds=1)))
        assert "of 4 ranks: rank(s) 1 did not come" in text, text
        (folder / f"refused-{rank}").touch()
    while len(list(folder.glob("refused-*"))) < size - 1:  # rank 0 keeps the store
        time.sleep(0.05)


def the_state_after_a_failure(rank: int, size: int) -> None:
    """A failed group stays failed, says why, and can be replaced."""
    assert dist.group.WORLD is not None
    group: Any = dist.new_group()
    raises("all_reduce", lambda: dist.all_reduce(torch.ones(3 + (rank == 0)), group=group))
    raises("all_reduce", lambda: dist.all_reduce(torch.ones(3), group=group))
    raises("all_reduce", lambda: dist.barrier(group=group))
    another = dist.new_group()
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=another)
    assert tensor[0] == size


def callbacks_that_wait(rank: int, size: int) -> None:
    """A callback may start another operation and wait for its future, whose callback may do the same."""

    def summed(depth: int, value: float) -> float:
        """`value` times the ranks, once for each level."""
        future = dist.all_reduce(torch.full((10,), value), async_op=True).get_future()
        if depth == 0:
            return float(future.wait()[0][0])
        return float(future.then(lambda done: summed(depth - 1, float(done.value()[0][0]))).wait())

    assert summed(5, 1.0) == size**6
    queued = [dist.all_reduce(torch.ones(10), async_op=True).get_future() for _ in range(8)]
    assert [future.then(lambda done: summed(1, float(done.value()[0][0]))).wait() for future in queued] == [size**3] * 8


def memory_after_a_wait(rank: int, size: int) -> None:
    """Operations that were waited for hold no tensor, whichever thread drove them, however late callbacks run."""
    enough, caller = threading.Event(), threading.get_ident()
    futures = []
    for late in (0, 1):  # whose callback is called at once; the others' fill the thread of callbacks
        time.sleep(0.05 if rank == late else 0)
        future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        futures.append(future.then(lambda _: threading.get_ident() == caller or enough.wait()))
    held = []

    def work_on(group: dist.ProcessGroup) -> None:
        for _ in range(50):
            tensor = torch.ones(1024)
            memory = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            work = dist.all_reduce(tensor, group=group, async_op=True)
            assert work is not None
            work.wait()
            del work, tensor
            held.append(not memory.expired())  # type: ignore[no-untyped-call]

    groups = [dist.new_group() for _ in range(3)]
    threads = [threading.Thread(target=work_on, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    enough.set()
    for future in futures:
        future.wait()
    assert not any(held), f"{sum(held)} of {len(held)}"


def exit_without_destroy(rank: int, size: int) -> None:
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda _: None)
    future.wait()


def exit_in_flight(rank: int, size: int) -> None:
    """Operations that nobody waits for, and a receive that is never answered: the process ends all the same."""
    for _ in range(5):
        dist.all_reduce(torch.ones(100_000), async_op=True)
    dist.barrier()
    if rank == 0:
        dist.irecv(torch.zeros(3), src=1)


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        return index


def data_loader_workers(rank: int, size: int) -> None:
    """Forked workers come and go while the group works; in them the group is no longer usable, and says so."""
    tensor = torch.ones(1000)
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2):
        assert len(batch) == 4
        dist.all_reduce(tensor, async_op=True).wait()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            raises("forked", lambda: dist.all_reduce(tensor))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with all destructors and exit handlers
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(tensor)


def groups_come_and_go(rank: int, size: int) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        groups = [dist.new_group(), dist.new_group([0, 2]), dist.new_group([1, 2, 3])]
        for group in groups:
            if isinstance(group, dist.ProcessGroup):
                tensor = torch.ones(5)
                dist.all_reduce(tensor, group=group)
                assert tensor[0] == group.size()
        for group in groups:
            if isinstance(group, dist.ProcessGroup):
                dist.destroy_process_group(group)
        groups.clear()
        del group
        gc.collect()
        dist.barrier()
    after = len(list(Path("/proc/self/fd").iterdir()))
    assert after <= before + 4, f"groups leave descriptors behind: {before} before, {after} after"


def sub_groups_and_threads(rank: int, size: int) -> None:
    """Several groups, each driven by a thread of its own, all at once."""
    groups = [dist.new_group() for _ in range(3)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for turn in range(50):
                tensor = torch.full((100 + index,), float(turn))
                pending = dist.all_reduce(tensor, group=groups[index], async_op=turn % 2 == 0)
                if pending is not None:
                    pending.wait()
                assert tensor[-1] == turn * size
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def profiler(rank: int, size: int) -> None:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(5))
        dist.all_reduce(torch.ones(5), async_op=True).wait()
        dist.all_gather_into_tensor(torch.ones(5 * size), torch.ones(5))
    names = [event.name for event in profile.events()]
    assert names.count("syntony:all_reduce") == 2, names
    assert "syntony:_all_gather_base" in names, names


def schedule_from_a_file(rank: int, size: int) -> None:
    """A Program file is proven, then offered; a file for another number of ranks is refused in a sentence."""
    from syntony import _core
    from syntony.collectives.torch_backend.backend import load_program
    from syntony.synth.formats.program_file import write_program

    path = Path(os.environ["CASE_FOLDER"]) / f"program-{rank}.json"
    for ranks in (size, size + 1):
        write_program(_core.build("ring", "all_reduce", ranks), path)
        if ranks == size:
            assert load_program(path) == "ring"
        else:
            try:
                load_program(path)
            except ValueError as error:
                assert "for 5 ranks, the group has 4" in str(error), error  # noqa: PT017
            else:
                raise AssertionError("a program for 5 ranks was taken by 4")
    dist.barrier()


def shrunk_by_torch(rank: int, size: int) -> None:
    """torch's own shrink_group: the caller names whom to leave out."""
    if rank == 1:
        raises("left the group", lambda: dist.all_reduce(torch.ones(3)))
        dist.destroy_process_group()
        return
    group = dist.shrink_group([1])
    assert group.size() == dist.get_world_size() == size - 1
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == size - 1


def killed_and_shrunk(rank: int, size: int) -> None:
    """Nobody says who died; DDP trains on in the group that is left."""
    from syntony.collectives.torch_backend.backend import communicator_of, shrink_group

    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    raises("rank 0", lambda: dist.all_reduce(torch.ones(1 << 20)))
    group = shrink_group()
    assert group.size() == dist.get_world_size() == size - 1
    assert communicator_of(group).members == [1, 2, 3]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4) * rank).sum().backward()
    assert model.module.weight.grad is not None
    assert model.module.weight.grad[0, 0] == 3 * sum(range(1, size)) / (size - 1)
    parts = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.barrier(parts)


def split_of_the_backend(rank: int, size: int) -> None:
    """What ProcessGroup.split_group asks for: members get a backend, others none, the parent goes on."""
    parent: Any = dist.group.WORLD
    for _ in range(2):
        part = parent.split_group([3, 1], timeout=timedelta(seconds=20), group_name=f"odd{_}")
        assert (part is None) == (rank in (0, 2))
        if part is not None:
            assert (part.size(), part.rank()) == (2, (rank - 1) // 2)
            tensor = torch.full((5,), float(rank))
            part.allreduce([tensor]).wait()
            assert tensor[0] == 4
        dist.barrier()


def memory_to_share(rank: int, size: int) -> None:
    """allocate_tensor gives memory that is registered in the core, and FSDP2 takes it for its buffers."""
    import numpy as np
    from torch.distributed.fsdp import fully_shard

    from syntony import _core, empty

    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    tensor = backend.allocate_tensor(1000, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert (tensor.shape, tensor.dtype) == ((1000,), torch.bfloat16)
    place = _core.place_of(tensor.data_ptr(), 2000)
    assert place is not None
    tensor.fill_(rank)
    assert os.pread(place[0], 2, place[1]) == tensor[:1].view(torch.uint8).numpy().tobytes()
    dist.all_reduce(tensor)
    assert (tensor == sum(range(size))).all()
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    assert _core.place_of(address, 1) is None
    array = empty((3, 5), np.int16)
    assert (array.shape, array.dtype, array.ctypes.data % 4096) == ((3, 5), np.int16, 0)
    shared = torch.from_numpy(array)
    shared += rank
    dist.all_reduce(shared)
    assert (array == sum(range(size))).all()

    model = torch.nn.Linear(17, 31)
    fully_shard(model)
    model.set_allocate_memory_from_process_group_for_comm(True)  # type: ignore[operator]
    model(torch.ones(2, 17)).sum().backward()


def the_whole_surface(rank: int, size: int) -> None:
    """Coalescing, batches of messages, tags, any source, a monitored barrier, every dtype, PREMUL_SUM."""
    group: Any = dist.group.WORLD
    tensors = [torch.ones(n) for n in (1, 7, 1000)]
    with dist.distributed_c10d._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == size).all() for tensor in tensors)

    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.zeros(3) for _ in range(4)]
    batch = [dist.P2POp(dist.isend, torch.full((3,), 10.0 * rank + i), right, tag=i) for i in range(4)]
    batch += [dist.P2POp(dist.irecv, received[i], left, tag=i) for i in reversed(range(4))]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert [tensor[0].item() for tensor in received] == [10.0 * left + i for i in range(4)]

    if rank == 0:
        sources = {dist.recv(torch.zeros(2), tag=9) for _ in range(size - 1)}
        assert sources == {1, 2, 3}
    else:
        dist.send(torch.ones(2), 0, tag=9)
    group.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)

    kinds = [kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)]
    moved, reduced = set(), set()
    for kind in kinds:
        try:
            source = torch.zeros(16, dtype=torch.uint8).view(kind)
            whole = torch.empty(size * len(source), dtype=kind)
            dist.all_gather_into_tensor(whole, source)
        except (RuntimeError, TypeError):  # torch itself has no such tensors, or no collectives for them (quantized)
            continue
        moved.add(kind)
        try:
            dist.all_reduce(source)
            reduced.add(kind)
        except RuntimeError as error:
            sentence = str(error)
            assert "cannot reduce tensors of type" in sentence or "has no meaning" in sentence
    floats = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
    integers = {torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32}
    integers |= {torch.uint64, torch.int64}
    assert floats | integers | {torch.bool, torch.complex64, torch.complex128, torch.complex32} <= reduced <= moved

    tensor = torch.ones(3)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(float(rank)))
    assert tensor[0] == sum(range(size))
    weighted = dist._make_nccl_premul_sum(2.0)
    raises("PREMUL_SUM needs a floating type", lambda: dist.all_reduce(tensor.int(), op=weighted))


def late_for_a_monitored_barrier(rank: int, size: int) -> None:
    if rank in (1, 3):
        time.sleep(2)
        return
    group: Any = dist.group.WORLD
    options = {"timeout": timedelta(milliseconds=400), "wait_all_ranks": True}
    reached = "Rank 2 successfully reached monitoredBarrier"
    said = "Ranks 1, 3 failed to pass monitoredBarrier" if rank == 0 else reached
    text = raises(said, lambda: group.monitored_barrier(**options))
    assert "rank 1 " in text, text
    assert "rank 3 " in text, text


def detail_mode(rank: int, size: int) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend in a checker of torch's own."""
    from syntony.collectives.torch_backend.backend import communicator_of

    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    dist.all_gather([torch.empty(5) for _ in range(size)], tensor)
    part = dist.new_group([0, 2])
    if rank in (0, 2):
        dist.all_reduce(tensor, group=part)
    assert communicator_of().size == size
    raises("mismatch between collectives", lambda: dist.all_reduce(torch.ones(3 + rank)))


def names_of_devices(rank: int, size: int) -> None:
    """A backend for each device: ours is found for tensors on the CPU."""
    for name in ("cpu:syntony", "cpu:syntony,cuda:nccl", "cpu:syntony,cuda:gloo"):
        try:
            group = dist.new_group(backend=name)
        except RuntimeError as error:  # a torch without NCCL says so itself
            assert "nccl" in name and "NCCL" in str(error), error  # noqa: PT017, PT018
            continue
        assert isinstance(group, dist.ProcessGroup)
        assert group._get_backend(torch.device("cpu")).name() == "syntony"
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == size


def proofs_at_creation(rank: int, size: int) -> None:
    assert "syntony.synth.checker" in sys.modules, "SYNTONY_CHECK=1 proves when the group is made"
    dist.barrier()


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        bad_arguments,
        mismatched_counts,
        mismatched_dtypes,
        killed,
        interrupted,
        timeout,
        absent_at_creation,
        the_state_after_a_failure,
        callbacks_that_wait,
        memory_after_a_wait,
        exit_without_destroy,
        exit_in_flight,
        data_loader_workers,
        groups_come_and_go,
        sub_groups_and_threads,
        profiler,
        schedule_from_a_file,
        proofs_at_creation,
        shrunk_by_torch,
        killed_and_shrunk,
        split_of_the_backend,
        memory_to_share,
        the_whole_surface,
        timing_and_hooks,
        synchronous_calls,
        late_for_a_monitored_barrier,
        detail_mode,
        names_of_devices,
    )
}
LEFT_STANDING = {
    "absent_at_creation",
    "exit_without_destroy",
    "exit_in_flight",
    "killed",
    "interrupted",
    "timeout",
    "mismatched_counts",
    "mismatched_dtypes",
    "late_for_a_monitored_barrier",
    "detail_mode",
    "shrunk_by_torch",
}


def main() -> None:
    names = sys.argv[1].split(",")
    dist.init_process_group("syntony", timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names:
        CASES[name](rank, size)
        print(json.dumps(f"{name}, rank {rank}: as it should be"), flush=True)
    if LEFT_STANDING.isdisjoint(names):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One case each of what can go wrong with a torch group, or end.

Run by launch.py: torch_cases.py CASE, with an empty folder in CASE_FOLDER. Nothing collective comes before the case: a
failure ends the group on every rank, also on one that is not yet out of the operation before.
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
    raises("average of bools", lambda: dist.all_reduce(torch.tensor([True]), op=dist.ReduceOp.AVG))
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
        assert "of 4 ranks: rank 1 did not come" in text, text
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
    from collectives.torch_backend import load_program
    from csrc import _core
    from synth.formats.program_file import write_program
    from synth.program import Program

    path = Path(os.environ["CASE_FOLDER"]) / f"program-{rank}.json"
    for ranks in (size, size + 1):
        write_program(Program.from_core(_core.build("ring", "all_reduce", ranks)), path)
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


def proofs_at_creation(rank: int, size: int) -> None:
    assert "synth.checker" in sys.modules, "SYNTONY_CHECK=1 proves when the group is made"
    dist.barrier()


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        bad_arguments,
        mismatched_counts,
        mismatched_dtypes,
        killed,
        timeout,
        absent_at_creation,
        the_state_after_a_failure,
        exit_without_destroy,
        exit_in_flight,
        data_loader_workers,
        groups_come_and_go,
        sub_groups_and_threads,
        profiler,
        schedule_from_a_file,
        proofs_at_creation,
    )
}
LEFT_STANDING = {
    "absent_at_creation",
    "exit_without_destroy",
    "exit_in_flight",
    "killed",
    "timeout",
    "mismatched_counts",
    "mismatched_dtypes",
}


def main() -> None:
    name = sys.argv[1]
    dist.init_process_group("syntony", timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    CASES[name](rank, size)
    print(json.dumps(f"rank {rank}: as it should be"), flush=True)
    if name not in LEFT_STANDING:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

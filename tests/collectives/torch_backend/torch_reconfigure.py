"""torch's reconfigure on three ranks (torch 2.15): late join, merge, split, shrink, after an abort, a time-out.

    torch_reconfigure.py NAME       the name of the backend

The cases are those of torch's own fault-tolerance tests of backends that need no accelerator. Rank 0 prints the name of
each that is done.
"""

import os
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType
from torch.distributed import distributed_c10d as c10d

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINE = slice(RANK, RANK + 1)
numbers = iter(range(10_000))
meetings = iter(range(10_000))


def meet() -> list[str]:
    """Everybody's handle, by rank at the start."""
    name = next(meetings)
    store.set(f"handle/{name}/{RANK}", dist._get_reconfigure_handle())
    return [store.get(f"handle/{name}/{rank}").decode() for rank in range(SIZE)]


def form(uuid: int, handles: list[str] | set[str]) -> None:
    dist._reconfigure(uuid, handles, timeout=timedelta(seconds=30)).wait()
    assert dist.get_world_size() == len(handles)


def new_uuid() -> int:
    """The same on all ranks, with room for one of each rank's own."""
    return SIZE * (1 + next(numbers))


def together() -> list[str]:
    """A group of all, in the order of the start."""
    handles = meet()
    form(new_uuid(), handles)
    assert dist.get_rank() == RANK
    return handles


def check_sum() -> None:
    tensor = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    assert tensor.eq(sum(range(1, dist.get_world_size() + 1))).all(), tensor


def all_reduce() -> None:
    together()
    check_sum()


def any_order() -> None:
    """A set: the backend chooses the ranks, alike on all."""
    form(new_uuid(), set(meet()))
    check_sum()


def send_and_receive() -> None:
    together()
    got = torch.zeros(4)
    sending = dist.isend(torch.full((4,), RANK + 1.0), (RANK + 1) % SIZE)
    dist.recv(got, (RANK - 1) % SIZE)
    assert sending is not None
    sending.wait()
    assert got.eq((RANK - 1) % SIZE + 1.0).all()


def without(gone: int) -> None:
    handles = together()
    uuid = new_uuid()
    if gone != RANK:
        form(uuid, [handle for rank, handle in enumerate(handles) if rank != gone])
        assert dist.get_rank() == RANK - (gone < RANK)
        check_sum()
        tensor = torch.full((4,), 42.0 if dist.get_rank() == 0 else 0.0)
        dist.broadcast(tensor, group_src=0)
        assert tensor.eq(42.0).all()
    meet()


def without_the_last() -> None:
    without(SIZE - 1)


def without_the_middle() -> None:
    without(SIZE // 2)


def alone_and_together() -> None:
    for _ in range(2):
        form(new_uuid() + RANK, meet()[MINE])
        assert dist.get_rank() == 0
        check_sum()
        together()
        check_sum()


def the_same_again() -> None:
    together()
    together()
    check_sum()


def late_join() -> None:
    handles, uuid = meet(), new_uuid()
    if RANK < SIZE // 2:
        form(uuid, handles[: SIZE // 2])
    together()
    check_sum()


def merge_and_split() -> None:
    handles, uuid, half = meet(), new_uuid(), SIZE // 2
    form(uuid + (half <= RANK), handles[:half] if half > RANK else handles[half:])
    check_sum()
    together()
    check_sum()


def after_an_abort() -> None:
    together()
    impl.abort()
    assert impl.get_error() == ErrorType.SUCCESS
    together()
    check_sum()


def after_a_timeout() -> None:
    together()
    check_sum()
    impl.set_timeout(timedelta(milliseconds=50))
    if RANK == 1:
        with pytest.raises(RuntimeError, match="timed out"):
            dist.all_reduce(torch.ones(4), async_op=True).wait()
    impl.set_timeout(timedelta(seconds=30))
    meet()
    together()
    check_sum()


def a_number_serves_once() -> None:
    uuid, own = new_uuid() + RANK, meet()[MINE]
    form(uuid, own)
    with pytest.raises(RuntimeError, match=f"uuid {uuid} was already used"):
        dist._reconfigure(uuid, own)
    with pytest.raises(RuntimeError, match="do not hold this rank's own"):
        dist._reconfigure(uuid + 5000, ["somebody else's"])


def who_does_not_come_is_named() -> None:
    handles, uuid = meet(), new_uuid()
    if RANK == 0:
        with pytest.raises(dist.DistBackendError, match=r"rank\(s\) 1 did not come"):
            dist._reconfigure(uuid, handles[:2], timeout=timedelta(milliseconds=500))
    meet()
    together()
    check_sum()


CASES: list[Callable[[], None]] = [
    all_reduce,
    any_order,
    send_and_receive,
    without_the_last,
    without_the_middle,
    alone_and_together,
    the_same_again,
    late_join,
    merge_and_split,
    after_an_abort,
    after_a_timeout,
    a_number_serves_once,
    who_does_not_come_is_named,
]

store = next(iter(dist.rendezvous("env://")))[0]
dist.init_process_group(
    sys.argv[1], store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=30), enable_reconfigure=True
)
impl = c10d._get_default_group()._get_backend(torch.device("cpu"))
assert dist._supports_reconfigure()
assert dist.get_backend() == sys.argv[1]
with pytest.raises(RuntimeError, match="has no members yet"):
    dist.all_reduce(torch.ones(1))
for case in CASES:
    case()
    if RANK == 0:
        print(case.__name__, flush=True)
meet()
dist.destroy_process_group()

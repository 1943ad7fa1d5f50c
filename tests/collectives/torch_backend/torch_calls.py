"""More cases for torch_cases.py: how a call ends, and who hears of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist


def timing_and_hooks(rank: int, size: int) -> None:
    """Works know how long they took; a hook hears of each that ends, and goes on to hear when it has raised."""
    group: Any = dist.group.WORLD
    group._enable_collectives_timing()
    work = group.allreduce([torch.ones(1000)])
    work.wait()
    assert 0 < work._get_duration() < 30_000
    heard: list[Any] = []

    def hear(work: Any) -> None:
        heard.append(work)
        if len(heard) == 2:
            raise ValueError("a hook that fails")

    group._register_on_completion_hook(hear)
    with pytest.raises(RuntimeError, match="has a hook on completions already"):
        group._register_on_completion_hook(hear)
    for _ in range(3):
        dist.all_reduce(torch.ones(10), async_op=True)
    dist.all_reduce(torch.ones(10))
    dist.barrier()
    group._wait_for_pending_works()
    heard.sort(key=lambda info: info.seq)  # who waits for a call hears of it before those that came earlier
    assert [str(info.op_type).rpartition(".")[2] for info in heard] == ["ALLREDUCE"] * 4 + ["BARRIER"]
    assert len({info.seq for info in heard}) == 5
    assert all(info.active_duration.total_seconds() > 0 for info in heard)
    assert all(info.time_finished > info.time_started for info in heard)


def synchronous_calls(rank: int, size: int) -> None:
    """A call that is not async is over when it returns, hands out no Work, and still fills strided outputs."""
    group: Any = dist.group.WORLD
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.zeros(4, 6)
    tensor.t().fill_(rank)
    strided = tensor[:, ::2]
    assert group.allreduce([strided], options) is None
    assert (tensor[:, ::2] == sum(range(size))).all()
    assert (tensor[:, 1::2] == rank).all()
    images = torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last)
    dist.all_reduce(images)
    assert (images == sum(range(size))).all()
    assert images.is_contiguous(memory_format=torch.channels_last)
    embedding = torch.sparse_coo_tensor(torch.tensor([[rank, size]]), torch.ones(2, 3), (size + 1, 3))
    dist.all_reduce(embedding)
    assert embedding.to_dense()[:, 0].tolist() == [1.0] * size + [float(size)]
    dist.all_reduce(torch.empty(0))

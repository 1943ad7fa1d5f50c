"""One rank: schedules over a group of any backend, beside what the Programs mean. Says what is wrong, or "right"."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import syntony
from syntony.collectives.p2p.over import Over


def main(backend: str, folder: str) -> None:
    dist.init_process_group(backend)
    group = syntony.over()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ways = [group, syntony.over(messages=True)] if backend == "syntony" else [group]
    losses = [train(None)]
    for way in ways:
        for case in torch.load(Path(folder) / "cases.pt"):
            compare(way, case, rank)
        sliced(way, rank, ranks)
        asynchronous(way, ranks)
        losses.append(train(way))
    assert (group._own is not None) == (backend == "syntony")
    assert len({tuple(one) for one in losses[1:]}) == 1, losses
    assert losses[0] == losses[1] or ranks > 2, losses
    assert all(abs(one - other) < 1e-5 for one, other in zip(*losses[:2], strict=True)), losses
    dist.destroy_process_group()
    print("right")


def compare(group: Over, case: dict[str, Any], rank: int) -> None:
    """The group's result is bit by bit what the Program means."""
    expected = case["outputs"][rank]
    got = getattr(group, case["collective"])(case["inputs"][rank].clone(), schedule=case["schedule"]).reshape(-1)
    same = torch.equal(got.view(torch.uint8), expected.view(torch.uint8))
    assert same, f"{case['collective']} {case['schedule']} {got.dtype}: {got[:4]} is not {expected[:4]}"


def sliced(group: Over, rank: int, ranks: int) -> None:
    """Two slices give what one gives."""
    given = torch.arange(1000, dtype=torch.float32) * (rank + 1)
    steps = group.steps("all_reduce", "ring", in_place=True)
    halves = given.clone()
    steps.run(halves, halves, slices=2)
    assert torch.equal(halves, torch.arange(1000, dtype=torch.float32) * (ranks * (ranks + 1) // 2))


def asynchronous(group: Over, ranks: int) -> None:
    """Several at once, in the order of their start; strided tensors; what cannot be divided."""
    ones = torch.ones(6, 4).t()
    works = [group.all_reduce(torch.ones(50) * number, async_op=True) for number in range(3)]
    works.append(group.all_reduce(ones, async_op=True))
    assert [float(work.wait()[0].sum()) for work in works] == [0.0, ranks, 2 * ranks, 6.0 * ranks]
    assert float(ones[0, 0]) == ranks
    assert group.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX).tolist() == [1.0, 1.0]
    assert group.all_reduce(torch.ones(2), op=dist.ReduceOp.AVG).tolist() == [1.0, 1.0]
    told = ""
    try:
        group.all_to_all(torch.ones(ranks + 1))
    except syntony.UserError as error:
        told = str(error)
    assert "cannot be divided" in told
    output = torch.empty(ranks, 3)
    works = [group.all_gather(torch.full((3,), float(k)), output=output, async_op=True) for k in range(2)]
    assert [work.wait() is output for work in works] == [True, True]
    assert output.tolist() == [[1.0] * 3] * ranks
    assert all(work.done() for work in works)
    try:
        group.all_gather(torch.ones(3), output=torch.empty(ranks, 3, dtype=torch.float64))
    except syntony.UserError as error:
        told = str(error)
    assert "elements of torch.float32" in told


def train(group: Over | None) -> list[float]:
    """Losses of four steps, with DDP's own sums or with a schedule's: one line differs."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    if group is not None:
        model.register_comm_hook(None, group.comm_hook("dbt"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(dist.get_rank())
    losses = []
    for _ in range(4):
        loss = (model(torch.randn(5, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:])

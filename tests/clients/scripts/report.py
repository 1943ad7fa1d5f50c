"""What a client's script tells the runner: of each of its parts the losses, the time of a step, and who served it."""

from __future__ import annotations

import json
import os
import statistics
import time

BACKEND = os.environ.get("CLIENT_BACKEND", "gloo")
"""The name that the script gives its client for the backend."""


class Report:
    """One part of a script: `step` after every step, `tell` at the end, on one rank."""

    def __init__(self, part: str = "") -> None:
        self.part = part
        self.losses: list[float] = []
        self.times = [time.perf_counter()]
        self.served = ""

    def step(self, loss: float) -> None:
        self.losses.append(float(loss))
        self.times.append(time.perf_counter())
        if not self.served:
            self.served = serving()

    def result(self) -> dict[str, object]:
        steps = [after - before for before, after in zip(self.times[2:], self.times[3:], strict=False)]
        return {
            "part": self.part,
            "losses": self.losses,
            "step_seconds": statistics.median(steps),
            "served": self.served,
        }

    def tell(self) -> None:
        print(f"CLIENT {json.dumps(self.result())}", flush=True)


def serving() -> str:
    """The class behind the default group for tensors on the CPU, as its backend itself names it."""
    import torch
    import torch.distributed as dist

    return str(dist.group.WORLD._get_backend(torch.device("cpu")).name())


def batch(step: int, rank: int, width: int, rows: int = 16):  # type: ignore[no-untyped-def]
    """Data that depends on step and rank only."""
    import torch

    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1000 * step + rank))


def layers():  # type: ignore[no-untyped-def]
    """The model of most clients: two linear layers of width 256, equal on all ranks."""
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))


def mean(value, group=None):  # type: ignore[no-untyped-def]
    """A loss, averaged over the ranks."""
    import torch.distributed as dist

    value = value.detach().clone()
    dist.all_reduce(value, group=group)
    return value / dist.get_world_size(group)


def train_step(report: Report, model, optimizer, step: int) -> None:  # type: ignore[no-untyped-def]
    """One step of a model that reproduces its input; reports the loss of all ranks."""
    import torch.distributed as dist

    data = batch(step, dist.get_rank(), 256)
    optimizer.zero_grad()
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    report.step(mean(loss))

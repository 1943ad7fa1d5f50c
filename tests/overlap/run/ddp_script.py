"""One rank of test_ddp.py: DDP with a policy against DDP as it is, bit by bit (two ranks: every sum has one rounding).

ddp_script.py BACKEND POLICY CLIP
"""

import copy
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syntony.overlap.run.ddp import ddp_hook

STEPS = 9


class Model(nn.Module):
    """Weights of very different sizes, one of them used twice, one directly by the outermost module."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.position = nn.Parameter(torch.randn(64))
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in "abc"))
        self.head = nn.Linear(64, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        y: torch.Tensor = self.head(self.layers(x))
        return y


def train(model: Model, rank: int, backend: str, policy: str, clip: float | None) -> tuple[list[float], Model]:
    """Losses, and the weights at the end."""
    group = dist.new_group(backend=backend)
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.08)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    overlap = ddp_hook(policy, ddp, optimizer, clip_norm=clip) if policy else None
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(10 * step + rank)
        tokens = torch.randint(0, 50, (8,), generator=generator)
        loss = nn.functional.cross_entropy(ddp(tokens), (tokens + 1) % 50)
        loss.backward()  # type: ignore[no-untyped-call]
        if overlap is None and clip is not None:
            nn.utils.clip_grad_norm_(ddp.parameters(), clip)
        if overlap is not None and clip is not None and overlap.plan is None:
            nn.utils.clip_grad_norm_(ddp.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    if overlap is not None:
        assert overlap.plan is not None, "no plan was made"
        assert len(overlap.plan.orders[0, "dp"]) >= 3
        ddp.state_dict()  # makes the updates that are still to come
        overlap.close()
    return losses, model


def main() -> None:
    backend, policy, limit = sys.argv[1:]
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    clip = float(limit) or None
    torch.manual_seed(3)
    model = Model()
    plain, weights = train(copy.deepcopy(model), dist.get_rank(), backend, "", clip)
    ours, other = train(copy.deepcopy(model), dist.get_rank(), backend, policy, clip)
    assert plain == ours, f"{plain}\n{ours}"
    for (name, one), two in zip(weights.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
    print("passed", flush=True)
    dist.barrier()
    os._exit(0)


main()

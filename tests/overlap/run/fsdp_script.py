"""One rank of test_fsdp.py: FSDP2 with fsdp_hook against FSDP2 as it is, bit by bit. Arguments: BACKEND PREFETCH."""

import copy
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from syntony.overlap.run.fsdp import fsdp_hook


def train(model: nn.Sequential, backend: str, prefetch: int | None) -> list[float]:
    mesh = DeviceMesh.from_group(dist.new_group(backend=backend), "cpu")
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if prefetch is not None:
        fsdp_hook(model, optimizer, prefetch=prefetch)
    losses = []
    for step in range(6):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        tokens = torch.randint(0, 50, (8,), generator=generator)
        loss = nn.functional.cross_entropy(model(tokens), (tokens + 1) % 50)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    backend, prefetch = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(4)
    layers = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(50, 64), *layers, nn.Linear(64, 50))
    plain, ours = train(copy.deepcopy(model), backend, None), train(copy.deepcopy(model), backend, prefetch)
    assert plain == ours, f"{plain}\n{ours}"
    assert len(set(plain)) == len(plain), "nothing was learned, so nothing was compared"
    print("passed", flush=True)
    dist.barrier()
    os._exit(0)


main()

"""FSDP2 (`fully_shard`), unmodified, with mixed precision; parameters do not divide evenly among the ranks."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(17, 31), nn.GELU(), nn.Linear(31, 17)) for _ in range(3)])
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(5):
    inputs = torch.randn(8, 17, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = (model(inputs) - inputs.roll(1)).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().float()
    dist.all_reduce(mean)
    losses += [mean.item() / size, (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()]
if rank == 0:
    print(json.dumps(losses))
dist.destroy_process_group()

"""Tensor and sequence parallelism over DTensor, unmodified."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

dist.init_process_group(sys.argv[1])
size = dist.get_world_size()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tensor",))
torch.manual_seed(1)
model = nn.ModuleDict({"norm": nn.LayerNorm(16), "up": nn.Linear(16, 48), "down": nn.Linear(48, 16)})
parallelize_module(
    model,
    mesh,
    {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    },
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(5):
    inputs = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(step))
    sharded = distribute_tensor(inputs, mesh, [Shard(1)])
    output = model["down"](nn.functional.gelu(model["up"](model["norm"](sharded))))
    loss = (output - inputs.flip(2)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
weights = distribute_tensor(torch.arange(35.0).reshape(7, 5), mesh, [Shard(0)])  # uneven shards
losses += [weights.redistribute(mesh, [Shard(1)]).full_tensor().sum().item(), weights.sum().full_tensor().item()]
if dist.get_rank() == 0:
    print(json.dumps(losses))
dist.destroy_process_group()

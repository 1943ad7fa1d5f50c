"""Distributed checkpointing (DCP), unmodified: a sharded model is saved, spoiled, loaded, and trained on."""

import json
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(9, 21), nn.ReLU(), nn.Linear(21, 9))
fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def train(steps: range) -> list[float]:
    losses = []
    for step in steps:
        inputs = torch.randn(6, 9, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
    return losses


losses = train(range(3))
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
dcp.save(state, checkpoint_id=folder[0])
expected = train(range(3, 5))
state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
dcp.load(state, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
assert train(range(3, 5)) == expected, "the loaded model trains differently"
if rank == 0:
    print(json.dumps(losses + expected))
dist.destroy_process_group()

"""Pipeline parallelism (torch.distributed.pipelining), unmodified, with a 1F1B schedule: batched send and recv."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
stages = [nn.Sequential(nn.Linear(10, 10), nn.Tanh()) for _ in range(size)]
stage = PipelineStage(stages[rank], rank, size, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(stages[rank].parameters(), lr=0.5)
losses = torch.zeros(4, dtype=torch.float64)
for step in range(4):
    inputs = torch.randn(8, 10, generator=torch.Generator().manual_seed(step))
    collected: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(inputs)
    elif rank == size - 1:
        schedule.step(target=inputs.flip(1), losses=collected)
        losses[step] = torch.stack(collected).mean().item()
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.broadcast(losses, src=size - 1)
if rank == 0:
    print(json.dumps(losses.tolist()))
dist.destroy_process_group()

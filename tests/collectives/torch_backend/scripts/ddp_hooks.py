"""DDP's communication hooks, unmodified: half precision, and PowerSGD, whose callbacks sum and wait for it."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
losses = []
for name in ("fp16", "PowerSGD"):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))
    ddp = DistributedDataParallel(model)  # one bucket: of several, PowerSGD sums in the order in which callbacks come
    if name == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    else:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(6):
        data = torch.randn(16, 40, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(data), data[:, :4].argmax(1))
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
if rank == 0:
    print(json.dumps(losses))
dist.destroy_process_group()

"""DistributedDataParallel, unmodified: a small classifier with a sparse embedding, gradient accumulation and join."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = nn.Sequential(
    nn.Embedding(64, 8, sparse=True), nn.Flatten(), nn.Linear(40, 33), nn.ReLU(), nn.BatchNorm1d(33), nn.Linear(33, 4)
)
ddp = DistributedDataParallel(model, bucket_cap_mb=0.002, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
losses = []
for step in range(6):
    generator = torch.Generator().manual_seed(100 * step + rank)
    tokens = torch.randint(64, (16, 5), generator=generator)
    optimizer.zero_grad()
    with ddp.no_sync():
        nn.functional.cross_entropy(ddp(tokens), tokens[:, 0] % 4).backward()
    loss = nn.functional.cross_entropy(ddp(tokens), tokens[:, 1] % 4)
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    losses.append(mean.item())
with ddp.join():  # ranks run out of data at different times
    for _ in range(rank + 1):
        ddp(torch.arange(80).reshape(16, 5) % 64).sum().backward()
if rank == 0:
    print(json.dumps(losses))
dist.destroy_process_group()

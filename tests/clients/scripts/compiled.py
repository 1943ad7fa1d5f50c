"""torch.compile of DDP and of FSDP2; the compiler's own code for collectives is in the graph."""

import torch
import torch.distributed as dist
from report import BACKEND, Report, batch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank, size = dist.get_rank(), dist.get_world_size()
for name in ("DDP", "FSDP2"):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    whole = DistributedDataParallel(model) if name == "DDP" else fully_shard(model)
    compiled = torch.compile(whole)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    report = Report(name)
    for step in range(15):
        data = batch(step, rank, 256)
        optimizer.zero_grad()
        loss = (compiled(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        report.step(mean / size)
    if rank == 0:
        report.tell()
dist.destroy_process_group()

"""torch.compile of DDP and of FSDP2; the compiler's own code for collectives is in the graph."""

import torch
import torch.distributed as dist
from report import BACKEND, Report, layers, train_step
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank = dist.get_rank()
for name in ("DDP", "FSDP2"):
    model = layers()
    whole = DistributedDataParallel(model) if name == "DDP" else fully_shard(model)
    compiled = torch.compile(whole)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    report = Report(name)
    for step in range(15):
        train_step(report, compiled, optimizer, step)
    if rank == 0:
        report.tell()
dist.destroy_process_group()

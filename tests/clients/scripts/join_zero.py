"""torch's Join (ranks with uneven inputs) around DDP and ZeroRedundancyOptimizer."""

import torch
import torch.distributed as dist
from report import BACKEND, Report, batch, layers
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank = dist.get_rank()
for uneven in (False, True):
    plain = layers()
    model = DistributedDataParallel(plain)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    report = Report("Join" if uneven else "ZeroRedundancyOptimizer")
    with Join([model, optimizer], enable=uneven):
        for step in range(20 - (4 * rank if uneven else 0)):
            data = batch(step, rank, 256)
            optimizer.zero_grad()
            loss = (model(data) - data).square().mean()
            loss.backward()
            optimizer.step()
            report.step(loss.detach())
    for parameter in model.parameters():
        dist.all_reduce(parameter.data, op=dist.ReduceOp.MAX)  # equal on all ranks, or the last loss is not
    report.step((plain(batch(99, 0, 256)) - batch(99, 0, 256)).square().mean().detach())
    if rank == 0:
        report.tell()
dist.destroy_process_group()

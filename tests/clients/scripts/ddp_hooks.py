"""DDP's communication hooks: torch's own, and one of a user that communicates in its callback."""

import torch
import torch.distributed as dist
from report import BACKEND, Report, layers, train_step
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank, size = dist.get_rank(), dist.get_world_size()


def in_two_halves(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """One half is summed, and the other one in the callback of its future."""
    gradients = bucket.buffer().div_(size)
    first, second = gradients.chunk(2)
    summed = dist.all_reduce(first, async_op=True).get_future()

    def other_half(_: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        dist.all_reduce(second)
        return gradients

    return summed.then(other_half)


for name in ("fp16", "bf16", "PowerSGD", "post-local SGD", "a user's own"):
    model = DistributedDataParallel(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if name == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "bf16":
        # DDP refuses it by its name where there is no NCCL; a function around it is not asked.
        model.register_comm_hook(None, lambda state, bucket: default_hooks.bf16_compress_hook(state, bucket))
    elif name == "PowerSGD":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name == "post-local SGD":
        alone, _ = dist.new_subgroups(group_size=1)
        state = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=5)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=3, warmup_steps=5))
    else:
        model.register_comm_hook(None, in_two_halves)
    report = Report(name)
    for step in range(15):
        train_step(report, model, optimizer, step)
    if rank == 0:
        report.tell()
dist.destroy_process_group()

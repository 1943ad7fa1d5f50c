"""torch's own parallelisms on four ranks: FSDP2 x tensor parallel with a distributed checkpoint, and a pipeline."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from report import BACKEND, Report, batch, layers, mean
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group(BACKEND)
rank, size = dist.get_rank(), dist.get_world_size()


def fsdp_tp() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)

    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = layers()
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    model, optimizer = make()
    report = Report("FSDP2 x TP, DCP")
    for step in range(20):
        if step == 10:  # as if restarted: all that is known comes from the checkpoint
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
            model, optimizer = make()
            weights, moments = get_state_dict(model, optimizer)
            dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        data = batch(step, mesh["dp"].get_local_rank(), 256)
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        report.step(mean(loss))
    if rank == 0:
        report.tell()


def pipeline() -> None:
    torch.manual_seed(1)
    stages = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(size)]
    stage = PipelineStage(stages[rank], rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stages[rank].parameters(), lr=0.5)
    report = Report("pipeline 1F1B")
    for step in range(15):
        data, losses = batch(step, 0, 256, rows=32), []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(data)
        elif rank == size - 1:
            schedule.step(target=data, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        loss = torch.stack(losses).sum().detach() if losses else torch.zeros(())
        report.step(mean(loss))
    if rank == 0:
        report.tell()


for parallelism in (fsdp_tp, pipeline):
    parallelism()
dist.destroy_process_group()

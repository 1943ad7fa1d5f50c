"""torchrun --max-restarts: rank 1 is killed in step 6, all start again from the last checkpoint."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from report import BACKEND, Report, batch
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank, size = dist.get_rank(), dist.get_world_size()
saved = Path(os.environ["CLIENT_FOLDER"]) / "checkpoint.pt"
torch.manual_seed(1)
layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
report = Report()
first = 0
if saved.exists():
    state = torch.load(saved)
    layers.load_state_dict(state["layers"])
    optimizer.load_state_dict(state["optimizer"])
    first, report.losses = state["step"], state["losses"]
model = DistributedDataParallel(layers)
for step in range(first, 20):
    if step == 6 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    data = batch(step, rank, 256)
    optimizer.zero_grad()
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    report.step(mean / size)
    if step % 4 == 3 and rank == 0:
        state = {"layers": layers.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step + 1, "losses": report.losses}, saved)
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "1", "nobody was killed"
if rank == 0:
    report.tell()
dist.destroy_process_group()

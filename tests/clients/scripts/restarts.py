"""torchrun --max-restarts: rank 1 is killed in step 6, all start again from the last checkpoint."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from report import BACKEND, Report, layers, train_step
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(BACKEND)
rank = dist.get_rank()
saved = Path(os.environ["CLIENT_FOLDER"]) / "checkpoint.pt"
plain = layers()
optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
report = Report()
first = 0
if saved.exists():
    state = torch.load(saved)
    plain.load_state_dict(state["layers"])
    optimizer.load_state_dict(state["optimizer"])
    first, report.losses = state["step"], state["losses"]
model = DistributedDataParallel(plain)
for step in range(first, 20):
    if step == 6 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    train_step(report, model, optimizer, step)
    if step % 4 == 3 and rank == 0:
        state = {"layers": plain.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step + 1, "losses": report.losses}, saved)
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "1", "nobody was killed"
if rank == 0:
    report.tell()
dist.destroy_process_group()

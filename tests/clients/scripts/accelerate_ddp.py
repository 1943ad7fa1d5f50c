"""accelerate: `prepare`, `backward`, `gather` on CPUs."""

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from report import BACKEND, Report, batch

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend=BACKEND)])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
report = Report()
for step in range(20):
    data = batch(step, accelerator.process_index, 256)
    loss = (model(data) - data).square().mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    report.step(accelerator.gather(loss.detach()).mean())
if accelerator.is_main_process:
    report.tell()
accelerator.end_training()

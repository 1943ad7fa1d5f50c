"""accelerate: `prepare`, `backward`, `gather` on CPUs."""

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from report import BACKEND, Report, batch, layers

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend=BACKEND)])
model = layers()
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

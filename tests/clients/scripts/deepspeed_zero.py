"""DeepSpeed's ZeRO, stages 1 to 3, on CPUs."""

import deepspeed
import torch
import torch.distributed as dist
from report import BACKEND, Report, batch, layers, mean

deepspeed.init_distributed(dist_backend=BACKEND, verbose=False)
rank = dist.get_rank()
for stage in (1, 2, 3):
    model = layers()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": 16,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 1.0,
        },
    )
    report = Report(f"ZeRO-{stage}")
    for step in range(15):
        data = batch(step, rank, 256)
        loss = (engine(data) - data).square().mean()
        engine.backward(loss)
        engine.step()
        report.step(mean(loss))
    if rank == 0:
        report.tell()
dist.destroy_process_group()

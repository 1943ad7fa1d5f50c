"""The trainer's transformer in stages of torch.distributed.pipelining, with real computing: a stage per rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from syntony.benchmarks.overlap.contenders.dtensor import linears
from syntony.benchmarks.overlap.contenders.ours import RATE, configured, microbatches
from syntony.benchmarks.overlap.contenders.subjects import TorchLayer
from syntony.trainer.model.model import transformer
from syntony.trainer.parallel.mesh import Mesh


class Staged:
    """A contender: `schedule` is a class of torch's with one stage per rank; the rest are sections of the trainer's
    configuration. Tells its last loss."""

    def __init__(self, backend: str, schedule: str, **sections: Mapping[str, Any]) -> None:
        config = configured(backend, **sections)
        mesh = Mesh(config.parallel, dist.get_rank())
        group = dist.new_group(backend=backend)
        assert isinstance(group, dist.ProcessGroup)
        rank, ranks = group.rank(), group.size()
        first, *blocks, head = transformer(config.model)
        each = len(blocks) // ranks
        mine: list[nn.Module] = [TorchLayer(layer) for layer in blocks[rank * each : (rank + 1) * each]]
        self.first, self.last = rank == 0, rank == ranks - 1
        if self.first:
            mine.insert(0, TorchLayer(first))
        if self.last:
            mine += [nn.RMSNorm(config.model.width, 1e-6), *linears(head.weight("logits").begin(0, head.name))]
        stage = nn.Sequential(*mine)
        made: Any = PipelineStage(stage, rank, ranks, torch.device("cpu"), group=group)
        self.schedule = get_schedule_class(schedule)(made, config.data.microbatches, loss_fn=_loss)
        self.optimizer = torch.optim.AdamW(stage.parameters(), lr=RATE, fused=True)
        self.tokens, self.targets = (torch.cat(parts) for parts in zip(*microbatches(config, mesh), strict=True))
        self.losses: list[Tensor] = []

    def step(self) -> None:
        self.losses = []
        given = (self.tokens,) if self.first else ()
        wanted = {"target": self.targets, "losses": self.losses} if self.last else {}
        self.schedule.step(*given, **wanted)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def finish(self) -> Mapping[str, Any]:
        loss = torch.stack(self.losses).mean().detach() if self.last else torch.zeros(())
        dist.all_reduce(loss)
        return {"loss": float(loss)}

    def close(self) -> None:
        pass


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

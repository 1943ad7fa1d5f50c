"""Who takes part in contests, by the name of the maker in an `Entry`. All work on the default group's ranks.

compute        the model without any communication: C
communication  all gradients summed, and nothing else: M
serial         backward, then one all_reduce
ddp            torch's DistributedDataParallel
fsdp           torch's FSDP2 (`fully_shard`), layer by layer
pipeline       torch.distributed.pipelining, any of its schedules, on stages that sleep
staged         the same with one real stage per rank (staged.py)
blocking       tensor or expert parallel layers by hand, with blocking collectives (blocking.py)
dtensor        tensor parallel layers as torch's parallelize_module makes them (dtensor.py)
tutel          experts as Tutel overlaps them, told again on torch (tutel.py)
trainer        the bundled trainer, under any policy (ours.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn.parallel import DistributedDataParallel

from syntony.benchmarks.overlap.contenders.blocking import Blocking
from syntony.benchmarks.overlap.contenders.contest import Contender
from syntony.benchmarks.overlap.contenders.dtensor import Dtensor
from syntony.benchmarks.overlap.contenders.emulated import SleepingStage
from syntony.benchmarks.overlap.contenders.ours import Trainer
from syntony.benchmarks.overlap.contenders.staged import Staged
from syntony.benchmarks.overlap.contenders.subjects import SUBJECTS
from syntony.benchmarks.overlap.contenders.tutel import Tutel
from syntony.overlap.run.ddp import ddp_hook
from syntony.overlap.run.fsdp import fsdp_hook

_TIMEOUT = timedelta(seconds=120)


def group_of(backend: str) -> dist.ProcessGroup:
    """A group of all ranks that nobody else uses."""
    group = dist.new_group(backend=backend, timeout=_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup)
    return group


class Torch:
    """A step of a subject (subjects.py), with what every contender below adds to it."""

    def __init__(self, subject: str, model: Mapping[str, Any]) -> None:
        self.subject = SUBJECTS[subject](**model)
        self.model = self.subject.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def backward(self) -> None:
        torch.autograd.backward(self.subject.loss(self.model))

    def finish(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Communication(Torch):
    """Gradients of the subject, summed layer by layer; nothing is computed."""

    def __init__(self, backend: str, **model: Any) -> None:
        super().__init__(**model)
        self.group = group_of(backend)
        counts = [sum(parameter.numel() for parameter in part.parameters()) for part in self.subject.parts]
        self.gradients = [torch.zeros(count) for count in counts]

    def step(self) -> None:
        for gradient in self.gradients:
            dist.all_reduce(gradient, group=self.group)


class Serial(Torch):
    """Nothing overlaps."""

    def __init__(self, backend: str, **model: Any) -> None:
        super().__init__(**model)
        self.group = group_of(backend)

    def backward(self) -> None:
        super().backward()
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, group=self.group)


class Ddp(Torch):
    """`bucket` in MB; 0: torch's default. With `policy`, under ddp_hook()."""

    def __init__(self, backend: str, bucket: float, policy: str = "", **model: Any) -> None:
        super().__init__(**model)
        self.model = DistributedDataParallel(
            self.model, process_group=group_of(backend), gradient_as_bucket_view=True, bucket_cap_mb=bucket or None
        )
        self.overlap = ddp_hook(policy, self.model, self.optimizer) if policy else None

    def finish(self) -> Mapping[str, Any]:
        if self.overlap is not None:
            self.overlap.finish()
        return {}

    def close(self) -> None:
        if self.overlap is not None:
            self.overlap.close()


class Fsdp(Torch):
    """`reshard`: weights are freed after the forward and gathered again (ZeRO-3); else kept until the step is over.

    With `prefetch`, under fsdp_hook().
    """

    def __init__(self, backend: str, reshard: bool, prefetch: int | None = None, **model: Any) -> None:
        super().__init__(**model)
        mesh = DeviceMesh.from_group(group_of(backend), "cpu")
        for part in self.subject.parts:
            fully_shard(part, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=reshard)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        if prefetch is not None:
            fsdp_hook(self.model, self.optimizer, prefetch=prefetch)


class Pipeline:
    """`schedule`: a class of torch.distributed.pipelining. Seconds are of one microbatch in one rank's layers."""

    def __init__(
        self,
        backend: str,
        schedule: str,
        microbatches: int,
        weights: int,
        forward: float,
        inputs: float,
        gradients: float,
        activation: int,
    ) -> None:
        kind = get_schedule_class(schedule)
        single = issubclass(kind, PipelineScheduleSingle)
        group = group_of(backend)
        rank, ranks = group.rank(), group.size()
        loops = 1 if single else 2
        last = loops * ranks - 1
        v_shaped = schedule in ("ZBVZeroBubble", "DualPipeV")
        places = [rank] if single else [rank, last - rank if v_shaped else rank + ranks]
        self.stages = [
            PipelineStage(
                SleepingStage(weights // loops, *(seconds / loops for seconds in (forward, inputs, gradients))),
                place,
                loops * ranks,
                torch.device("cpu"),
                group=group,
            )
            for place in places
        ]
        given: Any = self.stages[0] if single else self.stages
        self.schedule = kind(given, microbatches, loss_fn=lambda y, _: y.square().sum())
        self.first, self.last = 0 in places, last in places
        self.input = torch.zeros(microbatches, activation // 4, requires_grad=True)
        self.target = torch.zeros(microbatches, 1)

    def step(self) -> None:
        given = (self.input,) if self.first else ()
        target = {"target": self.target} if self.last else {}
        self.schedule.step(*given, **target)
        for stage in self.stages:
            for parameter in stage.submod.parameters():
                parameter.grad = None

    def finish(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


MAKERS: Mapping[str, Callable[..., Contender]] = MappingProxyType(
    {
        "compute": Torch,
        "communication": Communication,
        "serial": Serial,
        "ddp": Ddp,
        "fsdp": Fsdp,
        "pipeline": Pipeline,
        "staged": Staged,
        "blocking": Blocking,
        "dtensor": Dtensor,
        "tutel": Tutel,
        "trainer": Trainer,
    }
)

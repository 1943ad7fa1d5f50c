"""Who takes part in contests, by the name of the maker in an `Entry`. All work on the default group's ranks.

compute        the model without any communication: C
communication  all gradients summed, and nothing else: M
serial         backward, then one all_reduce
ddp            torch's DistributedDataParallel
fsdp           torch's FSDP2 (`fully_shard`), layer by layer
pipeline       torch.distributed.pipelining, any of its schedules
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn.parallel import DistributedDataParallel

from benchmarks.overlap.contest import Contender
from benchmarks.overlap.emulated import SleepingModel, SleepingStage
from collectives.overlap.fsdp import fsdp_hook

_TIMEOUT = timedelta(seconds=120)


def group_of(backend: str) -> dist.ProcessGroup:
    """A group of all ranks that nobody else uses."""
    group = dist.new_group(backend=backend, timeout=_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup)
    return group


class Emulated:
    """A step of a sleeping model, with what every contender of this file adds to it."""

    def __init__(self, layers: int, weights: int, seconds: float) -> None:
        self.model: nn.Module = SleepingModel(layers, weights, seconds)
        self.input = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def backward(self) -> None:
        out: Tensor = self.model(self.input)
        torch.autograd.backward(out.sum())

    def finish(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Communication:
    """Gradients of `layers` layers, summed one after the other; nothing is computed."""

    def __init__(self, layers: int, weights: int, backend: str) -> None:
        self.group = group_of(backend)
        self.gradients = [torch.zeros(weights // layers) for _ in range(layers)]

    def step(self) -> None:
        for gradient in self.gradients:
            dist.all_reduce(gradient, group=self.group)

    def finish(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Serial(Emulated):
    """Nothing overlaps."""

    def __init__(self, backend: str, **model: Any) -> None:
        super().__init__(**model)
        self.group = group_of(backend)

    def backward(self) -> None:
        super().backward()
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, group=self.group)


class Ddp(Emulated):
    """`bucket` in MB; 0: torch's default."""

    def __init__(self, backend: str, bucket: float, **model: Any) -> None:
        super().__init__(**model)
        self.model = DistributedDataParallel(
            self.model, process_group=group_of(backend), gradient_as_bucket_view=True, bucket_cap_mb=bucket or None
        )


class Fsdp(Emulated):
    """`reshard`: weights are freed after the forward and gathered again (ZeRO-3); else kept until the step is over.

    With `prefetch`, under fsdp_hook().
    """

    def __init__(self, backend: str, reshard: bool, prefetch: int | None = None, **model: Any) -> None:
        super().__init__(**model)
        mesh = DeviceMesh.from_group(group_of(backend), "cpu")
        for layer in self.model.children():
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=reshard)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
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
        "compute": Emulated,
        "communication": Communication,
        "serial": Serial,
        "ddp": Ddp,
        "fsdp": Fsdp,
        "pipeline": Pipeline,
    }
)

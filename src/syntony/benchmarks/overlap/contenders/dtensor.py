"""Tensor parallel training as torch offers it: `parallelize_module` with ColwiseParallel, RowwiseParallel and, for
sequences, SequenceParallel, on a transformer of nn.Linear with the trainer's first weights; and its `loss_parallel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from syntony.benchmarks.overlap.contenders.autograd import Autograd
from syntony.benchmarks.overlap.contenders.blocking import TIMEOUT
from syntony.benchmarks.overlap.contenders.ours import configured, microbatches
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import causal
from syntony.trainer.model.layer import Branch
from syntony.trainer.model.model import transformer
from syntony.trainer.parallel.mesh import Mesh


def linears(weight: Tensor) -> list[nn.Linear]:
    """One for each of a weight's matrices."""
    matrices = weight.view(-1, *weight.shape[-2:])
    made = [nn.Linear(weight.shape[-1], weight.shape[-2], bias=False) for _ in matrices]
    for linear, matrix in zip(made, matrices, strict=True):
        linear.weight = nn.Parameter(matrix.clone())
    return made


class _Attention(nn.Module):
    def __init__(self, layer: Branch, model: Model) -> None:
        super().__init__()
        self.q, self.k, self.v = linears(layer.weight("qkv").begin(0, layer.name))
        (self.project,) = linears(layer.weight("project").begin(0, layer.name))
        self._depth, self._rotary = model.width // model.heads, model.positions == "rotary"

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = (made.unflatten(-1, (-1, self._depth)).transpose(1, 2) for made in (self.q(h), self.k(h), self.v(h)))
        projected: Tensor = self.project(causal((q, k, v), self._rotary))
        return projected


class _Mlp(nn.Module):
    """swiglu"""

    def __init__(self, layer: Branch, model: Model) -> None:
        super().__init__()
        self.gate, self.value = linears(layer.weight("up").begin(0, layer.name))
        (self.down,) = linears(layer.weight("down").begin(0, layer.name))

    def forward(self, h: Tensor) -> Tensor:
        made: Tensor = self.down(F.silu(self.gate(h)) * self.value(h))
        return made


class _Branch(nn.Module):
    """x + branch(norm(x))"""

    def __init__(self, branch: nn.Module, width: int) -> None:
        super().__init__()
        self.norm, self.branch = nn.RMSNorm(width, 1e-6), branch

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.branch(self.norm(x))
        return made


class Dtensor(Autograd):
    """A contender: `model`, `parallel`, `data` are sections of the trainer's configuration. Tells its last loss."""

    def __init__(self, backend: str, **sections: Mapping[str, Any]) -> None:
        config = configured(backend, **sections)
        mesh = Mesh(config.parallel, dist.get_rank())
        ranks = DeviceMesh.from_group(mesh.groups(("tp",), TIMEOUT, backend)["tp"], "cpu")
        model, between = config.model, Shard(1) if config.parallel.sequence else Replicate()
        first, *middle, last = transformer(model)
        tokens = nn.Embedding(model.vocabulary, model.width)
        tokens.weight = nn.Parameter(first.weight("tokens").begin(0, first.name).clone())
        (logits,) = linears(last.weight("logits").begin(0, last.name))
        made = [(_Attention if layer.kind == "attention" else _Mlp)(layer, model) for layer in middle]
        self.model = nn.Sequential(
            tokens, *(_Branch(branch, model.width) for branch in made), nn.RMSNorm(model.width, 1e-6), logits
        )
        plan: dict[str, Any] = {
            "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            str(len(made) + 2): ColwiseParallel(
                input_layouts=between, output_layouts=Shard(-1), use_local_output=False
            ),
        }
        for place, branch in enumerate(made, start=1):
            whole = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
            plan[f"{place}.branch"] = whole
            for name, _ in branch.named_children():
                closing = name in ("project", "down")
                plan[f"{place}.branch.{name}"] = (
                    RowwiseParallel(output_layouts=between) if closing else ColwiseParallel()
                )
        if config.parallel.sequence:
            plan |= {f"{place}.norm": SequenceParallel() for place in range(1, len(made) + 1)}
            plan[str(len(made) + 1)] = SequenceParallel()
        parallelize_module(self.model, ranks, plan)
        parameters = list(self.model.parameters())
        kinds = [[each for each in parameters if isinstance(each, DTensor) is split] for split in (True, False)]
        groups = [{"params": each} for each in kinds if each]  # an optimizer's call takes one kind only
        super().__init__(microbatches(config, mesh), groups)

    def turn(self, tokens: Tensor, targets: Tensor) -> float:
        with loss_parallel():
            loss = F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
            torch.autograd.backward(loss / len(self.batch))
        whole = loss.detach()
        return float(whole.full_tensor() if isinstance(whole, DTensor) else whole)

"""Tutel's overlap, implemented on torch: tokens sent to experts are cut in `degree` parts along the experts' capacity,
and the all_to_all of one part runs while the experts compute another (Hwang et al., Tutel, MLSys 2023, section 3.3).

    dispatch 0 | dispatch 1 | ..   then   wait, feed 0 | combine 0 starts | wait, feed 1 | combine 1 starts | ..

Tutel itself is not on PyPI, and its repository (microsoft/Tutel, impls/moe_layer.py, July 2026) does not overlap
tensors on a CPU, whatever the degree. This contender does, with torch's asynchronous all_to_all. Every expert takes the
average number of rows (capacity factor 1, Tutel's default); rows beyond that are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from syntony.benchmarks.overlap.contenders.blocking import Blocking
from syntony.benchmarks.overlap.contenders.emulated import SleepingLayer
from syntony.trainer.config import Config
from syntony.trainer.model.layer import Layer, Weight
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.emulated import seconds_of

Feed = Callable[[Tensor], Tensor]  # (experts of a rank, rows of each, width) -> the same


def _start(x: Tensor, group: Any) -> tuple[Any, Tensor]:
    """Block r of the first axis goes to rank r."""
    x = x.contiguous()
    found = torch.empty_like(x)
    return dist.all_to_all_single(found, x, group=group, async_op=True), found


def _by_expert(x: Tensor, ranks: int) -> Tensor:
    """(ranks x experts, rows, width) -> (experts, ranks x rows, width)"""
    return x.view(ranks, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)


def _by_rank(x: Tensor, ranks: int) -> Tensor:
    """The inverse."""
    return x.view(len(x), ranks, -1, x.shape[-1]).transpose(0, 1).flatten(0, 1)


class _Pipelined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, feed: Feed, degree: int, group: Any, *weights: Tensor) -> Tensor:
        ranks, ctx.group, ctx.weights, ctx.runs = group.size(), group, weights, []
        answers = []
        for work, arrived in [_start(part, group) for part in x.chunk(degree, 1)]:
            work.wait()
            given = _by_expert(arrived, ranks).requires_grad_()
            with torch.enable_grad():
                made = feed(given)
            ctx.runs.append((given, made))
            answers.append(_start(_by_rank(made.detach(), ranks), group))
        return _landed(answers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ranks = ctx.group.size()
        back, sums = [], [torch.zeros_like(weight) for weight in ctx.weights]
        starting = [_start(part, ctx.group) for part in gradients[0].chunk(len(ctx.runs), 1)]
        for (work, arrived), (given, made) in zip(starting, ctx.runs, strict=True):
            work.wait()
            found = torch.autograd.grad(made, [given, *ctx.weights], _by_expert(arrived, ranks))
            back.append(_start(_by_rank(found[0], ranks), ctx.group))
            for total, gradient in zip(sums, found[1:], strict=True):
                total += gradient
        return _landed(back), None, None, None, *sums


def _landed(moving: Sequence[tuple[Any, Tensor]]) -> Tensor:
    for work, _ in moving:
        work.wait()
    return torch.cat([part for _, part in moving], 1)


class _Feed(nn.Module):
    """The experts of a rank, all at once."""

    def __init__(self, layer: Layer, gated: bool) -> None:
        super().__init__()
        up, down = layer.weights
        self.up, self.down = (nn.Parameter(weight.begin(0, layer.name).clone()) for weight in (up, down))
        self._gated = gated

    def forward(self, x: Tensor) -> Tensor:
        made = x @ self.up.flatten(1, 2).transpose(1, 2)
        if self._gated:
            gate, value = made.chunk(2, -1)
            made = F.silu(gate) * value
        else:
            made = F.gelu(made, approximate="tanh")
        return made @ self.down.transpose(1, 2)


class _Experts(nn.Module):
    """Router and experts of a block: (x) -> (x). `router`: whose gate's gradients are summed over all ranks."""

    def __init__(self, router: Any, feed: nn.Module, config: Config, degree: int, group: Any) -> None:
        super().__init__()
        self.router, self.feed, self._model = router, feed, config.model
        self._degree, self._group = degree, group
        self._real, self.share = config.run.compute == "real", router.share
        self.settle = router.settle

    def forward(self, x: Tensor) -> tuple[Tensor]:
        experts, width = self._model.experts, self._model.width
        _, h, weight, chosen = self.router(x)
        slots = chosen.numel()
        capacity = -(-slots // experts // self._degree) * self._degree
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=experts)
        place = torch.arange(slots) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        kept = place < capacity
        rows, at = order[kept], (chosen.flatten()[order] * capacity + place)[kept]
        sent = h.new_zeros(experts * capacity, width).index_copy(0, at, h.reshape(-1, width)[rows // chosen.shape[-1]])
        answers = _Pipelined.apply(  # type: ignore[no-untyped-call]
            sent.view(experts, capacity, width), self.feed, self._degree, self._group, *self.feed.parameters()
        )
        own = h.new_zeros(slots, width).index_copy(0, rows, answers.reshape(-1, width)[at])
        return (x + (own.view(*weight.shape, width) * weight.unsqueeze(-1)).sum(1).view_as(x),)


class Tutel(Blocking):
    """`degree`: a2a_ffn_overlap_degree. 1: GShard's order, with all experts' products at once."""

    def __init__(self, backend: str, degree: int, **sections: Mapping[str, Any]) -> None:
        self._degree = degree
        super().__init__(backend, **sections)

    def made(self, config: Config, mesh: Mesh, layers: Sequence[Layer]) -> nn.ModuleList:
        modules, found = list(super().made(config, mesh, layers)), []
        for index, (layer, module) in enumerate(zip(layers, modules, strict=True)):
            if layer.expert:
                continue
            experts = layers[index + 1] if index + 1 < len(layers) else layer
            if not experts.expert:  # it has no router at its end
                found.append(module)
                continue
            seconds = seconds_of(config) * sum(experts.spec.segments) / self._degree
            feed: nn.Module = _Feed(experts, config.model.activation == "swiglu")
            if config.run.compute == "emulated":
                feed = SleepingLayer(sum(map(_elements, experts.weights)), seconds, 2 * seconds)
            found.append(_Experts(module, feed, config, self._degree, self.groups["ep"]))
        return nn.ModuleList(found)


def _elements(weight: Weight) -> int:
    return weight.elements

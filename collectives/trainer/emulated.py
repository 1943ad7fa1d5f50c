"""Emulated computing, for the physics of schedules: ops take a given time and use no processor.

    a segment sleeps its share of `run.forward`, and hands on zeros of the right shape; its backward sleeps as long for
    the gradients of inputs, and as long again for those of weights, which are a constant of the right size

What moves between ranks is real. Routers choose every expert equally often. A part of a microbatch takes its share of
the seconds. Everything that is printed or written of such a run says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from collectives.trainer.config import Config
from collectives.trainer.layer import Layer, Product, Run, Use

_GRADIENT = 1e-3


def sleep(seconds: float) -> None:
    """As long; a sleep of 0 would give the processor away."""
    if seconds > 0:
        time.sleep(seconds)


def emulated(layers: Sequence[Layer], whole: Sequence[Layer], config: Config) -> list[Layer]:
    """The layers of a rank, sleeping. `whole`: of the whole model, which take `forward` seconds for each block."""
    flops = sum(segment.flops for layer in whole for segment in layer.segments)
    second = config.run.forward * config.model.blocks / flops
    rows = config.data.rows
    slots = rows * (config.model.context // config.parallel.cp) * config.model.top
    return [_sleeping(layer, second, config, rows, slots) for layer in layers]


def _sleeping(layer: Layer, second: float, config: Config, rows: int, slots: int) -> Layer:
    heaviest = max(range(len(layer.segments)), key=lambda index: layer.segments[index].flops)
    names = tuple(weight.name for weight in layer.weights)
    segments = [
        replace(segment, run=_run(segment.run, segment.flops * second, names if index == heaviest else (), rows, slots))
        for index, segment in enumerate(layer.segments)
    ]
    if layer.name.startswith("router"):
        even = _even(config.model.experts, config.model.top)
        segments = [replace(segments[0], run=_run(even, layer.segments[0].flops * second, names, rows, slots))]
    return replace(layer, segments=tuple(segments))


def _even(experts: int, top: int) -> Run:
    """Stands for a router's segment: the experts in turn."""

    def route(use: Use, x: Tensor) -> tuple[Tensor, ...]:
        tokens = x.shape[0] * x.shape[1]
        chosen = torch.arange(tokens * top).view(tokens, top) % experts
        return x, torch.zeros_like(x), torch.zeros(tokens, top), chosen

    return route


@dataclass(frozen=True)
class Nap(Product):
    """Stands for the gradient of a weight, which takes `seconds`."""

    seconds: float = 0.0

    def into(self, gradient: Tensor) -> None:
        sleep(self.seconds)
        gradient.fill_(_GRADIENT)


def _run(real: Run, seconds: float, names: tuple[str, ...], rows: int, slots: int) -> Run:
    """`names`: weights whose gradients this segment makes, the first of which takes all the time. `rows`, `slots`: of a
    whole microbatch, in sequences and as it goes to experts."""
    seen: dict[tuple[torch.Size, ...], list[int | Tensor]] = {}  # of each output: the input that it is, or what it is

    def run(use: Use, *tensors: Tensor) -> tuple[Tensor, ...]:
        key = tuple(tensor.shape for tensor in tensors)
        if key not in seen:
            with torch.no_grad():
                outputs = real(use, *tensors)
            use.leaves.clear()
            same = [[place for place, tensor in enumerate(tensors) if tensor is output] for output in outputs]
            seen[key] = [
                where[0] if where else torch.zeros_like(output) if output.is_floating_point() else output
                for where, output in zip(same, outputs, strict=True)
            ]
        first = tensors[0]
        whole = slots if first.dim() == 2 and first.is_floating_point() else rows
        took = seconds * len(first) / whole
        sleep(took)
        shapes = [one for one in seen[key] if isinstance(one, Tensor) and one.is_floating_point()]
        made = iter(())
        if shapes:
            grown = any(tensor.requires_grad for tensor in tensors)
            start = first if grown else torch.zeros((), requires_grad=torch.is_grad_enabled())
            made = iter(_Sleep.apply(use, took, names, shapes, start, *tensors))  # type: ignore[no-untyped-call]
        return tuple(
            tensors[one] if isinstance(one, int) else next(made) if one.is_floating_point() else one
            for one in seen[key]
        )

    return run


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, use: Use, seconds: float, names: tuple[str, ...], shapes: Sequence[Tensor], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.use, ctx.seconds, ctx.names = use, seconds, names
        ctx.inputs = [tensor if tensor.is_floating_point() else None for tensor in tensors]
        return tuple(shape.clone() for shape in shapes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        sleep(ctx.seconds)
        nothing = torch.empty(0)
        for place, name in enumerate(ctx.names):
            ctx.use.made(Nap(name, nothing, nothing, seconds=0.0 if place else ctx.seconds))
        back = [None if tensor is None else torch.zeros_like(tensor) for tensor in ctx.inputs]
        return None, None, None, None, *back

"""Emulated computing, for the physics of schedules: ops take a given time and use no processor.

    a segment sleeps its share of `run.forward`, and hands on zeros of the right shape; its backward sleeps as long for
    the gradients of inputs, and as long again for those of weights, which are a constant of the right size

What moves between ranks is real. A router's segment (its outputs are whole numbers that sizes come from) is computed.
Everything that is printed or written of such a run says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from collectives.trainer.config import Config
from collectives.trainer.model import Layer, Product, Run, Segment, Use

_GRADIENT = 1e-3


def emulated(layers: Sequence[Layer], whole: Sequence[Layer], config: Config) -> list[Layer]:
    """The layers of a rank, sleeping. `whole`: of the whole model, which take `forward` seconds for each block."""
    flops = sum(segment.flops for layer in whole for segment in layer.segments)
    second = config.run.forward * config.model.blocks / flops
    return [_sleeping(layer, second) for layer in layers]


def _sleeping(layer: Layer, second: float) -> Layer:
    if layer.name.startswith("router"):
        return layer
    heaviest = max(range(len(layer.segments)), key=lambda index: layer.segments[index].flops)
    names = tuple(weight.name for weight in layer.weights)
    segments = [
        replace(segment, run=_run(segment, segment.flops * second, names if index == heaviest else ()))
        for index, segment in enumerate(layer.segments)
    ]
    return replace(layer, segments=tuple(segments))


@dataclass(frozen=True)
class Nap(Product):
    """Stands for the gradient of a weight, which takes `seconds`."""

    seconds: float = 0.0

    def into(self, gradient: Tensor) -> None:
        time.sleep(self.seconds)
        gradient.fill_(_GRADIENT)


def _run(segment: Segment, seconds: float, names: tuple[str, ...]) -> Run:
    """`names`: weights whose gradients this segment makes, the first of which takes all the time."""
    shapes: dict[tuple[torch.Size, ...], tuple[Tensor, ...]] = {}

    def run(use: Use, *tensors: Tensor) -> tuple[Tensor, ...]:
        key = tuple(tensor.shape for tensor in tensors)
        if key not in shapes:  # the first time, to see what comes out
            with torch.no_grad():
                shapes[key] = tuple(map(torch.zeros_like, segment.run(use, *tensors)))
            use.leaves.clear()
        if not all(tensor.is_floating_point() for tensor in (*shapes[key], *tensors[:-1])):
            return segment.run(use, *tensors)
        time.sleep(seconds)
        grown = any(tensor.requires_grad for tensor in tensors)
        start = tensors[0] if grown else torch.zeros((), requires_grad=torch.is_grad_enabled())
        return _Sleep.apply(use, seconds, names, shapes[key], start, *tensors)  # type: ignore[no-any-return,no-untyped-call]

    return run


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, use: Use, seconds: float, names: tuple[str, ...], shapes: tuple[Tensor, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.use, ctx.seconds, ctx.names = use, seconds, names
        ctx.inputs = [tensor if tensor.is_floating_point() else None for tensor in tensors]
        return tuple(shape.clone() for shape in shapes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        time.sleep(ctx.seconds)
        nothing = torch.empty(0)
        for place, name in enumerate(ctx.names):
            ctx.use.made(Nap(name, nothing, nothing, seconds=0.0 if place else ctx.seconds))
        back = [None if tensor is None else torch.zeros_like(tensor) for tensor in ctx.inputs]
        return None, None, None, None, *back

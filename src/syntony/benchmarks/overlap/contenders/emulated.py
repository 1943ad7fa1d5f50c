"""A model whose layers sleep instead of computing, so that torch's own parallelisms are compared on emulated hardware
and not on this machine's two cores. Its gradients are constants of the right size; making them is part of the time that
a layer takes, as in the trainer's own emulation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from syntony.trainer.run.emulated import lasting


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, forward: float, backward: float) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.seconds = backward
        return lasting(forward, x.clone)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return gradients[0], lasting(ctx.seconds, torch.full_like, weight, 1e-3), None, None


class SleepingLayer(nn.Module):
    """`weights` floats; so many seconds forward and backward."""

    def __init__(self, weights: int, forward: float, backward: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weights))
        self.seconds = forward, backward

    def forward(self, x: Tensor) -> Tensor:
        """x as it came."""
        y: Tensor = _Sleep.apply(x, self.weight, *self.seconds)  # type: ignore[no-untyped-call]
        return y


class SleepingModel(nn.Sequential):
    """Equal layers; `seconds` of a whole step's compute, a third of it forward; `weights` floats in all."""

    def __init__(self, layers: int, weights: int, seconds: float) -> None:
        each = weights // layers // 1024 * 1024, seconds / layers / 3, 2 * seconds / layers / 3
        super().__init__(*(SleepingLayer(*each) for _ in range(layers)))


class _SleepBack(torch.autograd.Function):
    """Nothing forward; sleeps when the gradient of its input is asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds, ctx.shape = seconds, x.shape
        return torch.zeros(()) if x.dim() == 1 else x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0]
        return lasting(
            ctx.seconds, lambda: gradient if gradient.shape == ctx.shape else torch.full(ctx.shape, 1e-3)
        ), None


class SleepingStage(nn.Module):
    """A pipeline stage that computes gradients of its input and of its weights apart: (rows, width) -> the same."""

    def __init__(self, weights: int, forward: float, inputs: float, gradients: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weights))
        self.seconds = forward, inputs, gradients

    def forward(self, x: Tensor) -> Tensor:
        """x as it came."""
        forward, inputs, gradients = self.seconds

        def work() -> Tensor:
            y: Tensor = _SleepBack.apply(x, inputs)  # type: ignore[no-untyped-call]
            nothing: Tensor = _SleepBack.apply(self.weight, gradients)  # type: ignore[no-untyped-call]
            return y + nothing

        return lasting(forward, work)

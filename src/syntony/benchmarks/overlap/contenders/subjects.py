"""The models that are trained in contests: the bundled trainer's transformer in the form that torch's own parallelisms
need, or a model that sleeps. `subject.loss()` runs a step and returns its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from syntony.benchmarks.overlap.contenders.emulated import SleepingModel
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, merged
from syntony.trainer.model.model import transformer


@dataclass(frozen=True)
class Subject:
    """`parts`: what torch shards or puts in stages one by one, first to last."""

    model: nn.Module
    parts: tuple[nn.Module, ...]
    loss: Callable[[nn.Module], Tensor]


def emulated(layers: int, weights: int, seconds: float) -> Subject:
    """`seconds` of a step's compute, a third of it forward; `weights` floats in all."""
    model = SleepingModel(layers, weights, seconds)
    start = torch.zeros(1, requires_grad=True)
    return Subject(model, tuple(model), lambda run: run(start).sum())


def real(rows: int, **sizes: Any) -> Subject:
    """The trainer's transformer on random bytes. `sizes`: of its configuration, `hidden` and `context` among them."""
    model = Transformer(Model(**sizes))
    tokens = torch.randint(0, 256, (rows, sizes["context"]))
    return Subject(model, tuple(model.layers), lambda run: run(tokens, tokens))


SUBJECTS: dict[str, Callable[..., Subject]] = {"emulated": emulated, "real": real}


class Weights:
    """Stands for syntony.trainer.model.layer.ForwardContext where autograd does everything. `layer` has the weights as
    parameters."""

    share = 1.0
    piece = 0

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __getitem__(self, name: str) -> Tensor:
        weight: Tensor = getattr(self._layer, name)
        return weight

    def pieces(self) -> None:
        """Sequences are whole."""

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        """As ForwardContext's."""
        weight = self[name] if block is None else self[name][block]
        return nn.functional.linear(x, weight.view(-1, weight.shape[-1]))


class TorchLayer(nn.Module):
    """One of the trainer's layers, with torch's own parameters and autograd."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        layer = merged([branch])
        (self._segment,) = layer.segments
        for weight in layer.weights:
            self.register_parameter(weight.name, nn.Parameter(weight.begin(0, layer.name).clone()))

    def forward(self, *tensors: Tensor) -> Tensor:
        """x to x; the embedding's tokens to x; the head's x and targets to the loss."""
        return self._segment(Weights(self), *tensors)[0]


class Transformer(nn.Module):
    """(tokens, targets) -> mean loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TorchLayer(branch) for branch in transformer(model))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """One microbatch."""
        first, *middle, last = self.layers
        x = first(tokens)
        for layer in middle:
            x = layer(x)
        loss: Tensor = last(x, targets)
        return loss

"""The user's optimizer, one object for all that a rank owns; one step of it updates the slices that are due.

    due     [atom 3/0] [atom 3/1] [atom 2/0]        the others have no gradient, and optimizers pass over what has none
    step    `------------ one call --------'

Whatever it updates, a call of torch's optimizers takes some tenths of a millisecond in Python, as long as updating a
hundred thousand weights. So what became due together is updated together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from collectives.trainer.config import Optimizer

Before = tuple[Parameter, Tensor, Mapping[str, Any]]


class Slices:
    """`weights`: flat slices of weights that are updated in place, each with whether it decays.

    Fused where torch has it: the same bits (on CPUs), in less time.
    """

    def __init__(self, optimizer: Optimizer, weights: Sequence[tuple[Tensor, bool]]) -> None:
        self.parameters = [Parameter(part) for part, _ in weights]
        kind = getattr(torch.optim, optimizer.name)
        takes = inspect.signature(kind).parameters
        options: dict[str, Any] = dict(optimizer.options)
        for name, value in {"fused": True, "foreach": False}.items():
            if name in takes and not {"fused", "foreach"} & set(options):
                options[name] = value
        groups: list[dict[str, Any]] = []
        for decays in (True, False):
            chosen = [
                parameter for parameter, (_, does) in zip(self.parameters, weights, strict=True) if does is decays
            ]
            if chosen:
                still = {} if decays or "weight_decay" not in takes else {"weight_decay": 0.0}
                groups.append({"params": chosen, **still})
        self._optimizer: torch.optim.Optimizer = kind(groups, lr=optimizer.lr, **options)
        self._step: Callable[..., Any] = inspect.unwrap(type(self._optimizer).step)  # nobody else's hooks are on it

    def update(self, parameters: Sequence[Parameter], gradients: Sequence[Tensor], rate: float) -> None:
        """One step of the optimizer on these, at a learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            self._step(self._optimizer)
        for parameter in parameters:
            parameter.grad = None

    def state(self, parameter: Parameter) -> dict[str, Any]:
        """What the optimizer remembers of a slice, by its own names: tensors of its size, and counts."""
        state: dict[str, Any] = self._optimizer.state[parameter]
        return state

    def copied(self, parameters: Sequence[Parameter]) -> list[Before]:
        """Slices and what is remembered of them, for put_back()."""
        return [
            (one, one.detach().clone(), {name: _clone(value) for name, value in self.state(one).items()})
            for one in parameters
        ]

    def put_back(self, before: Sequence[Before]) -> None:
        """Takes updates back."""
        with torch.no_grad():
            for parameter, weights, state in before:
                parameter.copy_(weights)
                self._optimizer.state[parameter] = dict(state)


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value

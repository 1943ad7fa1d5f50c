"""The user's optimizer, one object for all that a rank owns; one step of it updates the slices that are due.

    due     [shard 3/0] [shard 3/1] [shard 2/0]        the optimizer's groups hold these only, for that while
    step    `------------ one call --------'

A call of torch's optimizers takes some tenths of a millisecond in Python whatever it updates, as long as updating a
hundred thousand weights. So slices that become due together are updated together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from syntony.trainer.config import Optimizer


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
        self._groups = self._optimizer.param_groups
        self._group_of = {parameter: group for group in self._groups for parameter in group["params"]}
        self._before: dict[Parameter, list[Tensor]] = {}
        self._copying: dict[Parameter, Future[None]] = {}
        self._copier = ThreadPoolExecutor(1, "copies")  # starts its thread with the first work
        self._step: Callable[..., Any] = inspect.unwrap(type(self._optimizer).step)  # without hooks of others

    def update(self, parameters: Sequence[Parameter], gradients: Sequence[Tensor], rate: float) -> None:
        """One step of the optimizer on these, at a learning rate."""
        for group in self._groups:
            group["lr"], group["params"] = rate, []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
            self._group_of[parameter]["params"].append(parameter)
        self._optimizer.param_groups = [group for group in self._groups if group["params"]]
        with torch.no_grad():
            self._step(self._optimizer)
        for parameter in parameters:
            parameter.grad = None

    def state(self, parameter: Parameter) -> dict[str, Any]:
        """The optimizer's state of a slice, by its own names: tensors of its size, and counters."""
        state: dict[str, Any] = self._optimizer.state[parameter]
        return state

    def remember(self, parameters: Sequence[Parameter]) -> None:
        """Copies slices, and the optimizer's state of them, for put_back()."""
        for copying in {self._copying.pop(parameter) for parameter in parameters}:
            copying.result()

    def remember_ahead(self, batches: Iterable[Sequence[Parameter]]) -> None:
        """Begins to copy all of these in the background, over their previous copies."""
        for parameters in batches:
            ours: list[Tensor] = []
            copies: list[Tensor] = []
            for parameter in parameters:
                now = [parameter.detach(), *self._tensors(parameter)]
                if len(self._before.get(parameter, ())) != len(now):
                    self._before[parameter] = [torch.empty_like(tensor) for tensor in now]
                ours += now
                copies += self._before[parameter]
            if copies:
                copying = self._copier.submit(torch._foreach_copy_, copies, ours)
                self._copying.update(dict.fromkeys(parameters, copying))

    def put_back(self, parameters: Sequence[Parameter]) -> None:
        """Undoes the last updates of these."""
        for parameter in parameters:
            weights, *memories = self._before[parameter]
            parameter.detach().copy_(weights)
            if not memories:  # it was the first update
                self._optimizer.state.pop(parameter, None)
            for tensor, memory in zip(self._tensors(parameter), memories, strict=False):
                tensor.copy_(memory)

    def _tensors(self, parameter: Parameter) -> list[Tensor]:
        return [value for value in self.state(parameter).values() if isinstance(value, Tensor)]

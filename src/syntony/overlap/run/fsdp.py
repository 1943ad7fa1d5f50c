"""FSDP2 with overlap on CPUs, which have no streams: there, torch's `fully_shard` communicates while nobody computes.

    fsdp_hook(model, optimizer, prefetch=2)

    forward   gather 0 | gather 1, 2 in flight | layer 0 | gather 3 in flight | layer 1 ..     this many layers ahead
    backward  layer 9 | its gradients are scattered while layer 8 computes, and awaited in optimizer.step()

Gathers and scatters have separate groups, so that weights that the next layer needs never wait behind gradients that
nobody needs yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.optim import Optimizer

from syntony.base.command import UserError


def fsdp_hook(model: nn.Module, optimizer: Optimizer, *, prefetch: int = 2) -> None:
    """Overlaps the communication of a model that `fully_shard` was applied to. Collective over its ranks.

    prefetch    number of modules ahead for which weights are gathered, in the order in which they were sharded; each
                costs the memory of its weights. 0: gathers are awaited as in torch, and only gradients overlap

    The loop stays unchanged; gradients are complete when optimizer.step() begins, not before. Raises UserError for a
    model without sharded modules, or with modules on several meshes.
    """
    modules: list[FSDPModule] = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise UserError("the model has no module that fully_shard was applied to")
    if prefetch < 0:
        raise UserError(f"prefetch is {prefetch}; it must be 0 or more")
    parameter = next(model.parameters())
    meshes = {id(getattr(one, "device_mesh", None)): getattr(one, "device_mesh", None) for one in model.parameters()}
    mesh = meshes.popitem()[1]
    if meshes or mesh is None or mesh.ndim != 1:
        raise UserError("the model's parameters must all be sharded over one mesh of one dimension")
    ranks = dist.get_process_group_ranks(mesh.get_group())
    backend = mesh.get_group()._get_backend(parameter.device).name()
    gathers, scatters = (_group(ranks, backend) for _ in range(2))
    scatter = _Scatter(scatters)
    root = cast(Any, modules[0])
    root._set_unshard_async_op(prefetch > 0)
    inner = modules[1:] or modules
    for place, module in enumerate(inner):
        module.set_modules_to_forward_prefetch(inner[place + 1 : place + 1 + prefetch])
        module.set_modules_to_backward_prefetch(inner[max(0, place - prefetch) : place][::-1])
    for module in modules:
        if module._get_fsdp_state()._fsdp_param_groups:
            module.set_custom_all_gather(_Gather(gathers))
            module.set_custom_reduce_scatter(scatter)
            module.set_gradient_divide_factor(1.0)
    optimizer.register_step_pre_hook(lambda *_: scatter.finish())


def _group(ranks: Sequence[int], backend: str) -> dist.ProcessGroup:
    group = dist.new_group(list(ranks), backend=backend)
    assert isinstance(group, dist.ProcessGroup)
    return group


class _Gather(DefaultAllGather):
    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        return super().__call__(output_tensor, input_tensor, self._group, async_op)


class _Scatter(DefaultReduceScatter):
    """Starts sums, and completes them in finish()."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._under_way: list[tuple[dist.Work, Tensor, Tensor]] = []

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> Any:  # nothing to wait for here
        work = super().__call__(output_tensor, input_tensor, self._group, dist.ReduceOp.SUM, async_op=True)
        self._under_way.append((work, output_tensor, input_tensor))
        return None

    def finish(self) -> None:
        """Waits until every gradient is the mean over the ranks."""
        for work, output, _ in self._under_way:
            work.wait()
            output.div_(self._group.size())
        self._under_way.clear()

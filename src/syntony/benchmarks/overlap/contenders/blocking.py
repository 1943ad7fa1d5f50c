"""Tensor and expert parallel training as written by hand on torch: the trainer's own layers of a rank under torch's
autograd, with a blocking collective wherever tensors are exchanged. Gradients of shared weights are summed layer by
layer during the backward, as in DDP.

    norm -> [all_gather] -> branch -> [reduce_scatter] -> add            Megatron-LM's order, and GShard's
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from syntony.benchmarks.overlap.contenders.autograd import Autograd
from syntony.benchmarks.overlap.contenders.ours import configured, microbatches
from syntony.benchmarks.overlap.contenders.subjects import Weights
from syntony.overlap.step.graph import CommSpec
from syntony.overlap.step.op import Kind
from syntony.trainer.config import Config
from syntony.trainer.model.layer import Layer, Move, Product, Transfer
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.parallel import parallelized
from syntony.trainer.run.emulated import emulated

TIMEOUT = timedelta(seconds=120)


def moved(kind: Kind | None, move: Callable[..., Move], x: Tensor, kept: Sequence[Tensor], group: Any) -> Tensor:
    """What has arrived of x when everybody has got it."""
    if kind is None:
        return x
    made = move(x, tuple(kept))
    if kind is Kind.ALL_REDUCE:
        dist.all_reduce(made.output, group=group)
    elif kind is Kind.ALL_GATHER:
        dist.all_gather_single(made.output, made.input, group=group)
    elif kind is Kind.REDUCE_SCATTER:
        dist.reduce_scatter_single(made.output, made.input, group=group)
    else:
        sizes = made.output_sizes and list(made.output_sizes), made.input_sizes and list(made.input_sizes)
        dist.all_to_all_single(made.output, made.input, *sizes, group=group)
    return made.finish(made.output)


class _Point(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, transfer: Transfer, spec: CommSpec, group: Any, *kept: Tensor) -> Tensor:
        ctx.transfer, ctx.kind, ctx.group, ctx.kept = transfer, spec.backward, group, kept
        kind = spec.forward
        found = moved(kind, transfer.forward, x.clone() if kind is Kind.ALL_REDUCE else x, kept, group)
        ctx.mark_non_differentiable(*(() if found.is_floating_point() else (found,)))
        return x.view_as(x) if found is x else found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        back = moved(ctx.kind, ctx.transfer.backward, gradients[0], ctx.kept, ctx.group)
        return back, None, None, None, *(None for _ in ctx.kept)


class _Weights(Weights):
    """The same for layers that sleep, and for those that are told a microbatch's share of the loss."""

    def __init__(self, layer: BlockingLayer) -> None:
        super().__init__(layer)
        self._blocking = layer
        self.share, self.leaves, self.at_once, self.even = layer.share, dict[str, Tensor](), self.made, False
        self.weights = {weight.name: self[weight.name] for weight in layer.layer.weights}

    def made(self, product: Product) -> None:
        """A layer that sleeps has a gradient."""
        parameter = getattr(self._layer, product.weight)
        parameter.grad = torch.empty_like(parameter)
        product.into(parameter.grad)
        self._blocking.arrived(product.weight)


class BlockingLayer(nn.Module):
    """One layer of the trainer. `groups` by lane; `sums` the lane whose ranks have the same weights."""

    def __init__(self, layer: Layer, groups: Mapping[str, Any], sums: str, share: float) -> None:
        super().__init__()
        self.layer, self.share, self._groups = layer, share, groups
        self._sums = groups.get(sums)
        self.under_way: list[tuple[Any, Tensor, list[nn.Parameter]]] = []
        for weight in layer.weights:
            parameter = nn.Parameter(weight.begin(0, layer.name).clone())
            self.register_parameter(weight.name, parameter)
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, name=weight.name: self.arrived(name)
            )
        self._missing = {weight.name for weight in layer.weights}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """As the trainer's segments."""
        context: Any = _Weights(self)
        for place, segment in enumerate(self.layer.segments):
            tensors = segment(context, *tensors)
            if place < len(self.layer.transfers):
                transfer, spec = self.layer.transfers[place], self.layer.spec.transfers[place]
                x, *kept = tensors
                tensors = (_Point.apply(x, transfer, spec, self._groups[spec.lane], *kept), *kept)  # type: ignore[no-untyped-call]
        return tensors

    def arrived(self, name: str) -> None:
        """The gradient of a weight is there; with the last one they travel."""
        self._missing.discard(name)
        if self._missing:
            return
        self._missing = {weight.name for weight in self.layer.weights}
        shared = [weight.name for weight in self.layer.weights if weight.shared]
        for group, names in ((self._sums, self._missing), (self._groups.get("tp"), shared)):
            if group is not None and names:
                parameters = [getattr(self, name) for name in sorted(names)]
                flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
                self.under_way.append((dist.all_reduce(flat, group=group, async_op=True), flat, parameters))

    def settle(self) -> None:
        """All gradients are sums."""
        for work, flat, parameters in self.under_way:
            work.wait()
            parts = torch.split(flat, [parameter.numel() for parameter in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self.under_way.clear()


class Blocking(Autograd):
    """A contender: `model`, `parallel`, .. are sections of the trainer's configuration. Tells its last loss."""

    def __init__(self, backend: str, **sections: Mapping[str, Any]) -> None:
        config = configured(backend, **sections)
        mesh = Mesh(config.parallel, dist.get_rank())
        lanes = tuple(lane for lane in ("tp", "ep", "dp", "edp") if mesh.size(lane) > 1)
        self.groups = mesh.groups(lanes, TIMEOUT, backend)
        even = config.run.compute == "emulated"
        layers = parallelized(config.model, mesh, config.data.rows, 4, even, skew=config.run.skew)
        if even:
            layers = emulated(layers, config)
        self.layers: Any = self.made(config, mesh, layers)
        self._share = 1.0 / config.data.microbatches
        super().__init__(microbatches(config, mesh), self.layers.parameters())

    def made(self, config: Config, mesh: Mesh, layers: Sequence[Layer]) -> nn.ModuleList:
        """The modules: each takes what the one before returns."""
        share = 1.0 / config.data.microbatches
        return nn.ModuleList(
            BlockingLayer(layer, self.groups, "edp" if layer.expert else "dp", share) for layer in layers
        )

    def turn(self, tokens: Tensor, targets: Tensor) -> float:
        *layers, head = self.layers
        tensors: tuple[Tensor, ...] = (tokens,)
        for layer in layers:
            tensors = layer(*tensors)
        (loss,) = head(*tensors, targets)
        torch.autograd.backward(loss * self._share)
        return float(loss.detach())

    def settle(self) -> None:
        for layer in self.layers:
            layer.settle()

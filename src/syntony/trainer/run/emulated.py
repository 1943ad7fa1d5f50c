"""Emulated computation, to study schedules: ops take a given time and hardly any processor time.

    a segment takes its share of its block's `run.forward`, and returns zeros of the right shape; its backward takes as
    long for the gradients of inputs, and again for those of weights, which are a constant of the right size

Making these tensors is part of that time, as in real computation; the rest is slept. Communication between ranks is
real. The shapes of a segment's outputs come from tensors without memory (torch's device `meta`) or, with experts, whose
numbers of rows are computed, from real ones; once per shape. The embedding and the head take no time, so equal blocks
make equal stages. Routers are even (expert_parallel/router.py). A part of a microbatch takes its share of the seconds.
All output of such a run is marked as emulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from syntony.overlap.step.models import Form, layers_of
from syntony.trainer.config import Config, Parallel
from syntony.trainer.model.layer import ForwardContext, Join, Layer, Product, Run

T = TypeVar("T")
_GRADIENT = 1e-3


def lasting(seconds: float, work: Callable[..., T], *given: Any) -> T:
    """Calls `work`, and returns after `seconds` seconds, or when it has ended, if that is later."""
    end = time.monotonic() + seconds
    made = work(*given)
    left = end - time.monotonic()
    if left > 0:  # a sleep of 0 would yield the processor
        time.sleep(left)
    return made


def emulated(layers: Sequence[Layer], config: Config, rows: int = 0, speed: float = 1.0) -> list[Layer]:
    """The layers of a rank, sleeping: the blocks of the whole model take `forward` seconds each.

    rows     of its microbatches; 0: the same for all
    speed    of the rank
    """
    rows = rows or config.data.rows
    second, within = seconds_of(config) / speed, range(1, len(layers) - 1)
    length = config.model.context // (config.parallel.cp * config.parallel.slices)
    whole = None if config.parallel.batch_parts > 1 else (rows, length)  # no microbatch is cut if weights travel
    counts = config.model.experts > 0
    return [_sleeping(layer, second * (i in within), whole, config.model.top, counts) for i, layer in enumerate(layers)]


def seconds_of(config: Config) -> float:
    """Seconds per operation."""
    whole = layers_of(config.model.spec, Parallel(), Form(config.data.rows, even=True))
    return config.run.forward * config.model.blocks / sum(sum(layer.segments) for layer in whole[1:-1])


def _sleeping(layer: Layer, second: float, whole: tuple[int, int] | None, top: int, counts: bool) -> Layer:
    runs = zip(layer.segments, layer.spec.segments, strict=True)
    return replace(layer, segments=tuple(_run(run, flops * second, whole, top, counts) for run, flops in runs))


@dataclass(frozen=True)
class Nap(Product):
    """Replaces the gradient of a weight; takes `seconds`."""

    seconds: float = 0.0

    def with_rows_of(self, every: Sequence[Product], join: Join) -> Nap:
        return replace(self, seconds=sum(each.seconds for each in every if isinstance(each, Nap)))

    def factors_into(self, x: Tensor, dy: Tensor) -> None:
        """The factors are arbitrary."""

    def into(self, gradient: Tensor) -> None:
        lasting(self.seconds, gradient.fill_, _GRADIENT)


@dataclass
class _Seen(ForwardContext):
    """Records which weights were used."""

    names: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Tensor:
        self.names.add(name)
        return super().__getitem__(name)

    def matrix(self, name: str, block: int | None = None) -> Tensor:
        self.names.add(name)
        return super().matrix(name, block)


@runtime_checkable
class Slotted(Protocol):
    """A segment that says how many of its input rows it computes with; others use all."""

    def rows(self, *tensors: Tensor) -> int: ...


def _share(real: Run, whole: tuple[int, int], top: int, tensors: Sequence[Tensor]) -> float:
    """The part of a microbatch (`whole`: number and length of its sequences) that the tensors are, if each token goes
    to `top` experts."""
    (rows, length), first = whole, tensors[0]
    if first.dim() == 2 and first.is_floating_point():  # rows that came, and those that stayed
        near = [len(x) for x in tensors if x.shape[1:] == first.shape[1:]]
        return (real.rows(*tensors) if isinstance(real, Slotted) else sum(near)) / (rows * length * top)
    share = len(first) / rows
    return share * first.shape[1] / length if first.dim() == 3 else share  # (sequences, a shard of length, width)


def _run(real: Run, seconds: float, whole: tuple[int, int] | None, top: int, counts: bool) -> Run:
    """Makes gradients of the weights that `real` uses; the first of them, a matrix if there is one, takes all the time.

    whole     as in _share, as `top`; None: all that comes is whole
    counts    it computes numbers of rows, too; so it is run for once, not only asked for shapes
    """
    names: set[str] = set()
    seen: dict[tuple[torch.Size, ...], list[int | Tensor]] = {}  # of each output: the input that it is, or what it is

    def run(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        took = seconds if whole is None else seconds * _share(real, whole, top, tensors)
        return lasting(took, made, context, took, *tensors)

    def made(context: ForwardContext, took: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        key = tuple(tensor.shape for tensor in tensors)
        if key not in seen:
            given, weights = list(tensors), context.weights
            if not counts:
                given = [tensor.to("meta") for tensor in tensors]
                weights = {name: weight.to("meta") for name, weight in weights.items()}
            with torch.no_grad():
                outputs = real(_Seen(weights, names=names), *given)
            same = [[place for place, tensor in enumerate(given) if tensor is output] for output in outputs]
            seen[key] = [
                where[0]
                if where
                else torch.zeros(output.shape, dtype=output.dtype)
                if output.is_floating_point()
                else output
                for where, output in zip(same, outputs, strict=True)
            ]
        shapes = [one for one in seen[key] if isinstance(one, Tensor) and one.is_floating_point()]
        zeros = iter(())
        if shapes:
            grown = any(tensor.requires_grad for tensor in tensors)
            start = tensors[0] if grown else torch.zeros((), requires_grad=torch.is_grad_enabled())
            order = sorted(names, key=lambda name: (context.weights[name].dim() < 2, name))
            zeros = iter(_Sleep.apply(context, took, order, shapes, start, *tensors))  # type: ignore[no-untyped-call]
        return tuple(
            tensors[one] if isinstance(one, int) else next(zeros) if one.is_floating_point() else one
            for one in seen[key]
        )

    return run


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        context: ForwardContext,
        seconds: float,
        names: Sequence[str],
        shapes: Sequence[Tensor],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.context, ctx.seconds, ctx.names = context, seconds, names
        ctx.inputs = [tensor if tensor.is_floating_point() else None for tensor in tensors]
        return tuple(shape.clone() for shape in shapes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        together = ctx.context.at_once is not None  # one sleep: it is waking up that costs
        nothing = torch.empty(0)
        each = [0.0 if place or together else ctx.seconds for place in range(len(ctx.names))]
        products = [Nap(name, nothing, nothing, seconds=took) for name, took in zip(ctx.names, each, strict=True)]

        def work() -> list[Tensor | None]:
            for product in products if together else ():
                ctx.context.made(product)
            return [None if tensor is None else torch.zeros_like(tensor) for tensor in ctx.inputs]

        back = lasting(2 * ctx.seconds if together else ctx.seconds, work)
        for product in () if together else products:
            ctx.context.made(product)
        return None, None, None, None, *back

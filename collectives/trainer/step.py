"""One training step on one rank: an interpreter of the Plan's compute order.

    for op in plan.orders[device, "compute"]:
        wait for the communication it depends on                        engine.wait
        forward | backward | .. one segment of one layer on one microbatch
        make the communication ready that takes what it has made        engine.ready

Every schedule of pipelines, recomputation, delayed weight gradients and any order in which layers are synchronised are
an order of the same few kinds of ops; nothing here knows their names. Segments run on detached inputs, and each
backward is one call of autograd, so an op begins and ends where the plan says.

Between segments and layers tensors wait in `_between`; what a
backward needs waits in `_kept`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collectives.overlap.layout import Clip
from collectives.overlap.op import COMPUTE, Kind, Op
from collectives.overlap.plan import Plan
from collectives.trainer.data_parallel.updates import Engine, Updates
from collectives.trainer.model import Layer, Move, Product, Use
from topologies.command import UserError

Tensors = tuple[Tensor, ...]


@dataclass
class Kept:
    """Of one segment's run, for its backward. `outputs` are empty where they will be computed again."""

    inputs: Tensors
    outputs: Tensors
    use: Use


@dataclass(frozen=True)
class Span:
    """When a compute op ran; seconds of time.monotonic(). `begin` is after its waits, `ready` before them."""

    name: str
    step: int
    ready: float
    begin: float
    end: float


class Redo(Exception):  # noqa: N818
    """Weights of the step before have been taken back; this step must be run again, on the new ones."""


class Interpreter:
    """Runs steps of a plan on one device.

    layers     the model's layers that lie on this device, by index, fused and cut to this rank's blocks
    last       index of the model's last layer
    share      of one microbatch in the step's loss
    boundary   shape and dtype of what one layer hands to the next
    """

    def __init__(
        self,
        plan: Plan,
        device: int,
        layers: Mapping[int, Layer],
        last: int,
        updates: Updates,
        engine: Engine,
        share: float,
        boundary: tuple[tuple[int, ...], torch.dtype],
    ) -> None:
        self.plan, self.device, self.layers, self._last = plan, device, layers, last
        self.updates, self._engine = updates, engine
        self._share, self._boundary = share, boundary
        graph = plan.graph
        self._ops = [graph[name] for name in plan.orders[device, COMPUTE]]
        moving = [graph[name] for (owner, lane), names in plan.orders.items() if owner == device for name in names]
        moving = [op for op in moving if op.kind.moves]
        self._moves = {name for op in moving for name in (op.name, *op.sources)}
        self._receives = [op for op in moving if op.kind is Kind.RECV]
        self._alone = all(op.pieces and op.kind is Kind.ALL_REDUCE for op in moving)  # forwards need nobody
        self._recomputed = {(op.layer, op.microbatch, op.segment) for op in self._ops if op.kind is Kind.RECOMPUTE}
        self._gathers = {
            op.name: op for op in moving if op.kind is Kind.ALL_GATHER and op.pieces and op.microbatch >= 0
        }
        self._users = {  # of gathered weights: the compute ops, first to last
            name: [op.name for op in self._ops if {name, *gather.sources} & set(op.deps)]
            for name, gather in self._gathers.items()
        }
        computed = {op.name for op in self._ops}
        self._before = {name: set(op.deps) & computed for name, op in self._gathers.items()}
        for op in self._ops:
            if op.kind not in _HANDLERS:
                raise UserError(f"the plan has an op {op.name!r} of kind {op.kind}, which the trainer cannot run")
        whole = {(op.sources, op.kind): op.name for op in (*self._ops, *moving) if not op.pieces}
        for op in (*self._ops, *moving):
            if not op.pieces and whole[op.sources, op.kind] != op.name:
                raise UserError(f"the plan cuts {op.sources[0]!r} into parts; the trainer can only run it whole")
        self.step = -1
        self.spans: list[Span] = []

    def run(self, microbatches: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
        """One step on this rank's microbatches (tokens, targets): their losses, where the device has the head.

        Raises Redo when optimistic clipping has taken the last step back: the same microbatches must be run again.
        """
        self.step += 1
        self._batch = microbatches
        self._between: dict[tuple[str, int, int, int], tuple[Tensor | Move, Tensors]] = {}
        self._kept: dict[tuple[int, int, int], Kept] = {}
        self._leaves: dict[tuple[int, int], _Leaf] = {}
        self._wholes: dict[str, dict[int, Tensor]] = {}  # gathered weights
        self._views: dict[int, dict[str, Tensor]] = {}
        self._losses: dict[int, Tensor] = {}
        self._verified = self._void = False
        self._waiting = {name: set(before) for name, before in self._before.items()}
        self._engine.begin_step()
        self.updates.begin(first=self.step == 0)
        for op in self._receives:
            self._take(op)
        for name in self._gathers:
            self._gather_after("", name)
        for op in self._ops:
            ready = time.monotonic()
            self._await(op)
            begin = time.monotonic()
            _HANDLERS[op.kind](self, op)
            self.spans.append(Span(op.name, self.step, ready, begin, time.monotonic()))
            for name in self._gathers:
                self._gather_after(op.name, name)
            self._engine.poll()
        if self._void:
            self.updates.finish()
            raise Redo
        return torch.stack([self._losses[m] for m in sorted(self._losses)]) if self._losses else None

    # ---- ops --------------------------------------------------------------------------------------------------------

    def _await(self, op: Op) -> None:
        """Returns when all that it needs is there. What updates wait for is the business of Updates."""
        if op.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) and not self._verified:
            self._verified = True
            if not self.updates.verify():
                if self._alone:
                    raise Redo
                self._void, self.updates.rate = True, None
        if op.kind in (Kind.OPTIMIZE, Kind.NORM):
            return
        for name in (*op.deps, *op.lagged):
            other = self.plan.graph[name]
            if other.kind is Kind.OPTIMIZE or (other.pieces and other.microbatch < 0):
                self.updates.settle(op.layer)
            elif name in self._moves:
                self._engine.wait(name)

    def _forward(self, op: Op) -> None:
        i, m, s = where = op.layer, op.microbatch, op.segment
        layer, again = self.layers[i], where in self._recomputed
        inputs = self._inputs(i, m, s)
        with torch.set_grad_enabled(not again):
            kept = self._kept[where] = self._segment(op, inputs)
        out, *rest = (tensor.detach() for tensor in kept.outputs)
        if again:
            kept.outputs = ()
        if s < len(layer.segments) - 1:
            transfer, here = layer.transfers[s], tuple(rest)
            name = f"{transfer.planned.name}.{i}.{m}.f"
            move = transfer.forward(out, here) if name in self._moves else out
            self._send(name, ("f", i, m, s + 1), move, here)
        elif i == self._last:
            self._losses[m] = out
        else:
            self._send(f"send.{i}.{m}.f", ("f", i + 1, m, 0), out, tuple(rest))

    def _recompute(self, op: Op) -> None:
        where = op.layer, op.microbatch, op.segment
        with torch.enable_grad():
            self._kept[where] = self._segment(op, self._kept[where].inputs)

    def _segment(self, op: Op, inputs: Tensors) -> Kept:
        use = Use(self._weights(op), op.microbatch, self._share)
        outputs = self.layers[op.layer].segments[op.segment].run(use, *inputs)
        use.weights = {}
        return Kept(inputs, outputs, use)

    def _backward(self, op: Op) -> None:
        i, m, s = op.layer, op.microbatch, op.segment
        layer, kept = self.layers[i], self._kept[i, m, s]
        if s == len(layer.segments) - 1 and i == self._last:
            gradients: Tensors = (torch.full_like(kept.outputs[0], self._share),)
        else:
            arrived, rest = self._between.pop(("b", i, m, s if s < len(layer.segments) - 1 else -1))
            gradients = (_landed(arrived), *rest)
        pairs = [pair for pair in zip(kept.outputs, gradients, strict=True) if pair[0].requires_grad]
        sought = [tensor for tensor in kept.inputs if tensor.requires_grad]
        use = kept.use
        use.weights = self._weights(op)
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            [*sought, *use.leaves.values()],
            [gradient for _, gradient in pairs],
            allow_unused=True,
        )
        use.weights, kept.outputs = {}, ()
        leaf = self._leaf(i, m)
        for name, gradient in zip(use.leaves, found[len(sought) :], strict=True):
            if gradient is not None:
                leaf.write(name, gradient)
        use.leaves = {}
        back = {id(tensor): gradient for tensor, gradient in zip(sought, found, strict=False) if gradient is not None}
        out, *rest_back = (back[id(t)] if id(t) in back else torch.zeros_like(t) for t in kept.inputs)
        if s:
            transfer = layer.transfers[s - 1]
            name = f"{transfer.planned.name}.{i}.{m}.b"
            here = tuple(tensor.detach() for tensor in kept.inputs[1:])
            move = transfer.backward(out, here) if name in self._moves else out
            self._send(name, ("b", i, m, s - 1), move, tuple(rest_back))
        elif i:
            rest_back = rest_back[:-1] if i == self._last else rest_back  # targets came from nobody
            self._send(f"send.{i}.{m}.b", ("b", i - 1, m, -1), out, tuple(rest_back))
        kept.inputs = ()
        if op.kind is Kind.BACKWARD:
            self._backward_weight(op)

    def _backward_weight(self, op: Op) -> None:
        i, m = op.layer, op.microbatch
        leaf = self._leaf(i, m)
        for product in self._kept.pop((i, m, op.segment)).use.products:
            leaf.multiply(product)
        leaf.segments -= 1
        if leaf.segments:
            return
        holding = self.updates.holdings[i]
        del self._leaves[i, m]
        leaf.finish()
        for source, buffer in enumerate(leaf.buffers):
            holding.tree.add(source * len(self._batch) + m, buffer)
        holding.arrived += 1
        if holding.arrived == len(self._batch):
            holding.arrived = 0
            self.updates.complete(i)

    def _norm(self, op: Op) -> None:
        if self.plan.clip is Clip.EXACT:
            self.updates.clip()

    def _optimize(self, op: Op) -> None:
        self.updates.optimize(op.layer)

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def _inputs(self, i: int, m: int, s: int) -> Tensors:
        tokens, targets = self._batch[m]
        if s or i:
            arrived, rest = self._between.pop(("f", i, m, s))
            if i == self._last and not s:
                rest = (*rest, targets)
        else:
            arrived, rest = tokens, ()
        return tuple(t.detach().requires_grad_(t.is_floating_point()) for t in (_landed(arrived), *rest))

    def _send(self, name: str, to: tuple[str, int, int, int], what: Tensor | Move, rest: Tensors) -> None:
        """Hands `what` to another segment: over a lane if the plan has an op of that name."""
        if name not in self._moves:
            self._between[to] = what, rest
        elif isinstance(what, Tensor):  # to another device, which has its own `_between`
            self._engine.ready(name, what.contiguous())
        else:
            if what.input_sizes is None or what.output_sizes is None:
                self._engine.ready(name, what.input.view(-1), what.output.view(-1))
            else:
                self._engine.ready(name, what.input, what.output, what.input_sizes, what.output_sizes)
            self._between[to] = what, rest

    def _take(self, op: Op) -> None:
        """What another device sends."""
        buffer = torch.empty(self._boundary[0], dtype=self._boundary[1])
        self._engine.ready(op.name, buffer)
        forward = op.name.endswith(".f")
        self._between["f" if forward else "b", op.layer + 1 if forward else op.layer - 1, op.microbatch,
                      0 if forward else -1] = buffer, ()  # fmt: skip

    def _gather_after(self, done: str, name: str) -> None:
        """Starts a gather whose last compute op was `done`, and forgets the weights that nobody needs any more."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.discard(done)
            if not waiting:
                del self._waiting[name]
                layers = {piece.layer for piece in self._gathers[name].pieces}
                source = self._gathers[name].sources[0]
                wholes = self._wholes.setdefault(source, {})
                for index in layers - set(wholes):
                    wholes[index] = torch.empty(self.updates.holdings[index].flat.elements)
                self.updates.gather(name, wholes)
        if done and self._users[name][-1:] == [done]:
            self._wholes.pop(self._gathers[name].sources[0], None)

    def _weights(self, op: Op) -> dict[str, Tensor]:
        holding = self.updates.holdings[op.layer]
        for name in op.deps:
            for part in self.plan.parts.get(name, ()):
                if part in self._gathers:
                    wholes = self._wholes[self._gathers[part].sources[0]]
                    self.updates.unpack(part, wholes)
                    return holding.flat.views(wholes[op.layer].to(self._boundary[1]))
        if op.layer not in self._views:
            assert holding.whole is not None
            self._views[op.layer] = holding.flat.views(holding.whole.to(self._boundary[1]))
        return self._views[op.layer]

    def _leaf(self, i: int, m: int) -> _Leaf:
        if (i, m) not in self._leaves:
            layer, holding = self.layers[i], self.updates.holdings[i]
            turns = len(self._batch)
            buffers = [holding.tree.leaf(source * turns + m) for source in range(layer.sources)]
            views = [holding.flat.views(buffer) for buffer in buffers]
            self._leaves[i, m] = _Leaf(buffers, views, len(layer.segments))
        return self._leaves[i, m]


def _landed(what: Tensor | Move) -> Tensor:
    return what if isinstance(what, Tensor) else what.finish(what.output)


@dataclass
class _Leaf:
    """The gradients of one layer from one microbatch (of each source), while they are being made.

    segments   whose gradients are still to come
    """

    buffers: list[Tensor]
    views: list[dict[str, Tensor]]
    segments: int
    written: set[tuple[int, str, int | None]] = field(default_factory=set)

    def write(self, name: str, gradient: Tensor) -> None:
        view = self.views[0][name]
        if (0, name, None) in self.written:
            view += gradient
        else:
            view.copy_(gradient)
        self.written.add((0, name, None))

    def multiply(self, product: Product) -> None:
        view, key = self.views[product.source][product.weight], (product.source, product.weight, product.block)
        if key in self.written:
            before = view.clone()
            product.into(view)
            place = slice(None) if product.block is None else product.block
            view[place] += before[place]
        else:
            product.into(view)
        self.written.add(key)

    def finish(self) -> None:
        """What nothing contributed to is 0."""
        for source, views in enumerate(self.views):
            for name, view in views.items():
                if (source, name, None) in self.written:
                    continue
                blocks = {block for at, what, block in self.written if (at, what) == (source, name)}
                for block in range(len(view)) if blocks else ():
                    if block not in blocks:
                        view[block].zero_()
                if not blocks:
                    view.zero_()


_HANDLERS: Mapping[Kind, Callable[[Interpreter, Op], None]] = {
    Kind.FORWARD: Interpreter._forward,
    Kind.RECOMPUTE: Interpreter._recompute,
    Kind.BACKWARD: Interpreter._backward,
    Kind.BACKWARD_INPUT: Interpreter._backward,
    Kind.BACKWARD_WEIGHT: Interpreter._backward_weight,
    Kind.NORM: Interpreter._norm,
    Kind.OPTIMIZE: Interpreter._optimize,
}

"""One training step on one rank: an interpreter of the Plan's compute order.

    for op in plan.orders[device, "compute"]:
        wait for the communication it depends on                        runner.wait
        forward | backward | .. one segment of one layer on one microbatch
        make the communication ready that takes what it has made        runner.ready

Every schedule of pipelines, recomputation, delayed weight gradients and any order in which layers are synchronised are
an order of the same few kinds of ops; nothing here knows their names. Segments run on detached inputs, and each
backward is one call of autograd, so an op begins and ends where the plan says.

Policies may cut ops in parts (`fwd.3.0.1/0`), each on a part of the microbatch (crossing.py). Between segments and
layers tensors wait in `_between`; what a backward needs waits in `_kept`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from syntony.base.command import UserError
from syntony.overlap.run.plan_runner import PlanRunner, Record
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.plan import Plan
from syntony.trainer.model.crossing import Crossing, Load
from syntony.trainer.model.layer import SHADOW, Layer, Move, Transfer, Use
from syntony.trainer.parallel.data_parallel.leaf import Leaf
from syntony.trainer.parallel.data_parallel.updates import Updates

Tensors = tuple[Tensor, ...]
_ROWS = Transfer()  # between layers


@dataclass
class Kept:
    """Of one segment's run, for its backward. `outputs` are empty where they will be computed again."""

    inputs: Tensors
    outputs: Tensors
    use: Use


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
        runner: PlanRunner,
        share: float,
        boundary: tuple[tuple[int, ...], torch.dtype],
    ) -> None:
        self.plan, self.device, self.layers, self._last = plan, device, layers, last
        self.updates, self._runner = updates, runner
        self._share, self._boundary = share, boundary
        graph = plan.graph
        self._ops = [graph[name] for name in plan.orders[device, COMPUTE]]
        moving = [graph[name] for (owner, lane), names in plan.orders.items() if owner == device for name in names]
        moving = [op for op in moving if op.kind.moves]
        self._moves = {name for op in moving for name in (op.name, *op.sources)}
        self._receives = [op for op in moving if op.kind is Kind.RECV]
        self._alone = all(op.pieces and op.kind is Kind.ALL_REDUCE for op in moving)  # forwards need nobody
        self._recomputed = {(op.layer, op.microbatch, op.segment) for op in self._ops if op.kind is Kind.RECOMPUTE}
        self._used = {  # by layer: whose weights its segments use, and what comes before their names
            i: {index: prefix for index, prefix in ((i, ""), (graph.shadow(i), SHADOW)) if index in updates.holdings}
            for i in layers
        }
        self._gathers = {
            op.name: op for op in moving if op.kind is Kind.ALL_GATHER and op.pieces and op.microbatch >= 0
        }
        self._users = {  # of gathered weights: the compute ops, first to last
            name: [op.name for op in self._ops if {name, *gather.sources} & set(op.deps)]
            for name, gather in self._gathers.items()
        }
        computed = {op.name for op in self._ops}
        self._before = {name: set(op.deps) & computed for name, op in self._gathers.items()}
        self._watching: dict[str, list[str]] = {}  # by compute op: gathers that begin or are forgotten after it
        for name, before in self._before.items():
            for op_name in {*before, *self._users[name][-1:]}:
                self._watching.setdefault(op_name, []).append(name)
        self._needs = {op.name: self._needed(op) for op in self._ops}
        for op in self._ops:
            if op.kind not in _HANDLERS:
                raise UserError(f"the plan has an op {op.name!r} of kind {op.kind}, which the trainer cannot run")
        self._parts: dict[str, list[str]] = {}  # of ops without pieces, by what they are parts of
        for op in (*self._ops, *moving):
            if not op.pieces:
                if len(op.sources) > 1:
                    raise UserError(f"the plan unites {op.sources[0]!r} with others, which the trainer runs apart")
                self._parts.setdefault(op.name.partition("/")[0], []).append(op.name)
        self._places: dict[str, tuple[int, int]] = {}  # of each of these: which part, of how many
        for names in self._parts.values():
            names.sort(key=lambda name: int(name.rpartition("/")[2]) if "/" in name else 0)
            self._places |= {name: (place, len(names)) for place, name in enumerate(names)}
        makers = (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
        self._makers = Counter((op.layer, op.microbatch) for op in self._ops if op.kind in makers)
        self._late = self._sums_wait_for(moving, computed)
        self._check_parts()
        self._views: dict[int, dict[str, Tensor]] = {}  # weights, by layer
        self.step = -1
        self.spans: list[Record] = []  # of compute ops
        self.watch: Callable[[Kept | None], None] = lambda kept: None  # told of segments that ran, and of backwards

    def run(self, microbatches: Sequence[tuple[Tensor, Tensor]], number: int = -1) -> Tensor | None:
        """One step on this rank's microbatches (tokens, targets): their losses, where the device has the head.

        number    what errors call the step; -1: one more than the last

        Raises Redo when optimistic clipping has taken the last step back: the same microbatches must be run again.
        """
        self.step += 1
        self._batch = microbatches
        self._between: dict[tuple[str, int, int, int], Crossing] = {}
        self._leaving: dict[str, Crossing] = {}
        self._kept: dict[tuple[int, int, int], dict[int, Kept]] = {}  # by part
        self._leaves: dict[tuple[int, int], Leaf] = {}
        self._wholes: dict[str, dict[int, Tensor]] = {}  # gathered weights
        if self._boundary[1] is not torch.float32:
            self._views.clear()  # they are of the last step's weights, rounded
        self._losses: dict[int, list[Tensor]] = {}
        self._arrived = Counter[int]()  # by layer: microbatches whose gradients are summed
        self._done: set[str] = set()  # compute ops of this step
        self._withheld: dict[int, set[str]] = {}  # layers with all gradients, and what their sums wait for beside these
        self._verified = self._void = False
        self._waiting = {name: set(before) for name, before in self._before.items()}
        self._runner.begin_step(number)
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
            self._done.add(op.name)
            for i in [i for i, others in self._withheld.items() if others <= self._done]:
                del self._withheld[i]
                self.updates.complete(i)
            for name in self._watching.get(op.name, ()):
                self._gather_after(op.name, name)
            self.spans.append(Record(op.name, self.step, ready, begin, time.monotonic()))
            self._runner.poll()
        if self._void:
            self.updates.finish()
            raise Redo
        losses = [torch.stack(self._losses[m]).mean() for m in sorted(self._losses)]
        return torch.stack(losses) if losses else None

    def _sums_wait_for(self, moving: Sequence[Op], computed: AbstractSet[str]) -> dict[int, set[str]]:
        """By layer, the compute ops that the plan wants to have ended before its sum begins, beside its own."""
        late: dict[int, set[str]] = {}
        for op in moving:
            if _sums(op) and op.kind is not Kind.ALL_GATHER:
                layers = {piece.layer for piece in op.pieces}
                others = {name for name in op.deps if name in computed and self.plan.graph[name].layer not in layers}
                for layer in layers:
                    late.setdefault(layer, set()).update(others)
        return late

    def _check_parts(self) -> None:
        """Raises UserError where segments are cut in a way that does not fit."""
        counts: dict[tuple[int, int, int], int] = {}
        for op in self._ops:
            if op.microbatch < 0 or op.kind is Kind.BACKWARD_WEIGHT:
                continue
            parts = self._places[op.name][1]
            if parts != counts.setdefault((op.layer, op.microbatch, op.segment), parts):
                raise UserError(f"the plan cuts {op.sources[0]!r} in {parts} parts, but not so its forward")
            if self._boundary[0][0] % parts and not self.layers[op.layer].expert:
                rows = self._boundary[0][0]
                raise UserError(
                    f"the plan cuts {op.sources[0]!r} in {parts} parts; its {rows} sequences are no multiple"
                )

    # ---- ops --------------------------------------------------------------------------------------------------------

    def _needed(self, op: Op) -> tuple[bool, tuple[str, ...]]:
        """Whether an op waits for its layer's update, and for what that moves."""
        if op.kind in (Kind.OPTIMIZE, Kind.NORM):
            return False, ()
        others = [self.plan.graph[name] for name in (*op.deps, *op.lagged)]
        updates = {other.name for other in others if other.kind is Kind.OPTIMIZE or _sums(other)}
        return bool(updates), tuple(o.name for o in others if o.name in self._moves and o.name not in updates)

    def _await(self, op: Op) -> None:
        """Returns when all that it needs is there. What updates wait for is the business of Updates."""
        if op.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) and not self._verified:
            self._verified = True
            if self.updates.verify():
                self.updates.foresee()
            elif self._alone:
                raise Redo
            else:
                self._void, self.updates.rate = True, None
        updated, moved = self._needs[op.name]
        if updated:
            self.updates.settle(op.layer)
        for name in moved:
            self._runner.wait(name)

    def _forward(self, op: Op) -> None:
        i, m, s = where = op.layer, op.microbatch, op.segment
        layer, again, (part, parts) = self.layers[i], where in self._recomputed, self._places[op.name]
        inputs = self._inputs(i, m, s, part, parts)
        with torch.set_grad_enabled(not again):
            kept = self._segment(op, inputs)
        self._kept.setdefault(where, {})[part] = kept
        out, *others = (tensor.detach() for tensor in kept.outputs)
        if again:
            kept.outputs, kept.use.leaves = (), {}
        load = Load(out, tuple(others), tuple(others))
        if s < len(layer.segments) - 1:
            transfer = layer.transfers[s]
            self._pass_on(transfer, f"{transfer.planned.name}.{i}.{m}.f", op, load, ("f", i, m, s + 1))
        elif i == self._last:
            self._losses.setdefault(m, []).append(out)
        else:
            self._pass_on(_ROWS, f"send.{i}.{m}.f", op, load, ("f", i + 1, m, 0))

    def _recompute(self, op: Op) -> None:
        kept, part = self._kept[op.layer, op.microbatch, op.segment], self._places[op.name][0]
        with torch.enable_grad():
            kept[part] = self._segment(op, kept[part].inputs)

    def _segment(self, op: Op, inputs: Tensors) -> Kept:
        use = Use(self._weights(op), op.microbatch, self._share)
        outputs = self.layers[op.layer].segments[op.segment].run(use, *inputs)
        use.weights = {}
        kept = Kept(inputs, outputs, use)
        self.watch(kept)
        return kept

    def _backward(self, op: Op) -> None:
        i, m, s = op.layer, op.microbatch, op.segment
        layer, (part, parts) = self.layers[i], self._places[op.name]
        kept = self._kept[i, m, s][part]
        if i == self._last and s == len(layer.segments) - 1:
            gradients: Tensors = (torch.full_like(kept.outputs[0], self._share / parts),)
        else:
            load = self._taken(("b", i, m, s), part, parts)
            gradients = (load.x, *load.rest)
        pairs = [pair for pair in zip(kept.outputs, gradients, strict=True) if pair[0].requires_grad]
        sought = [tensor for tensor in kept.inputs if tensor.requires_grad]
        use, leaf = kept.use, self._leaf(i, m)
        self.watch(None)
        use.weights = self._weights(op)
        use.at_once = leaf.multiply if op.kind is Kind.BACKWARD else None
        wanted = [*sought, *use.leaves.values()]
        outputs, into = [output for output, _ in pairs], [gradient for _, gradient in pairs]
        found: Sequence[Tensor | None] = ()
        if wanted:
            found = torch.autograd.grad(outputs, wanted, into, allow_unused=True)
        else:  # all that it makes are gradients of matrices
            torch.autograd.backward(outputs, into)
        use.weights, kept.outputs = {}, ()
        for name, gradient in zip(use.leaves, found[len(sought) :], strict=True):
            if gradient is not None:
                leaf.write(name, gradient)
        use.leaves = {}
        back = {id(tensor): gradient for tensor, gradient in zip(sought, found, strict=False) if gradient is not None}
        out, *rest_back = (back[id(t)] if id(t) in back else torch.zeros_like(t) for t in kept.inputs)
        here = tuple(tensor.detach() for tensor in kept.inputs[1:])
        if s:
            transfer = layer.transfers[s - 1]
            load = Load(out, tuple(rest_back), here)
            self._pass_on(transfer, f"{transfer.planned.name}.{i}.{m}.b", op, load, ("b", i, m, s - 1))
        elif i:
            rest_back = rest_back[:-1] if i == self._last else rest_back  # targets came from nobody
            load = Load(out, tuple(rest_back), ())
            before = len(self.layers[i - 1].segments) - 1 if i - 1 in self.layers else 0
            self._pass_on(_ROWS, f"send.{i}.{m}.b", op, load, ("b", i - 1, m, before))
        kept.inputs = ()
        if op.kind is Kind.BACKWARD:
            del self._kept[i, m, s][part]
            self._made(op)

    def _backward_weight(self, op: Op) -> None:
        part, parts = self._places[op.name]
        for number in [part] if parts > 1 else sorted(self._kept[op.layer, op.microbatch, op.segment]):
            self._multiply(op, number)
        self._made(op)

    def _multiply(self, op: Op, part: int) -> None:
        leaf = self._leaf(op.layer, op.microbatch)
        for product in self._kept[op.layer, op.microbatch, op.segment].pop(part).use.products:
            leaf.multiply(product)

    def _made(self, op: Op) -> None:
        """An op has made gradients of weights; after the layer's last one they are summed."""
        i, m = op.layer, op.microbatch
        leaf = self._leaf(i, m)
        leaf.ops -= 1
        if leaf.ops:
            return
        del self._leaves[i, m]
        leaf.finish()
        for tree, place, buffer in leaf.sums:
            tree.add(place, buffer)
        self._arrived[i] += 1
        if self._arrived[i] == len(self._batch):
            for index in self._used[i]:
                self._withheld[index] = self._late.get(index, set()) - self._done

    def _norm(self, op: Op) -> None:
        self.updates.clip()

    def _optimize(self, op: Op) -> None:
        self.updates.optimize(op.layer)

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def _inputs(self, i: int, m: int, s: int, part: int, parts: int) -> Tensors:
        tensors: Tensors = ()
        if s or i:
            load = self._taken(("f", i, m, s), part, parts)
            tensors = (load.x, *load.rest)
        if not s and i in (0, self._last):  # the first layer takes tokens, the last one targets too
            tensors += (self._batch[m][i > 0].chunk(parts)[part],)
        return tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors)

    def _taken(self, where: tuple[str, int, int, int], part: int, parts: int) -> Load:
        crossing = self._between[where]
        load = crossing.take(part, parts)
        if crossing.taken == parts:
            del self._between[where]
        return load

    def _pass_on(self, transfer: Transfer, name: str, op: Op, load: Load, to: tuple[str, int, int, int]) -> None:
        """Over a gap, or to the next layer: on a lane, if the plan has ops of that name."""
        if name not in self._moves:
            self._between.setdefault(to, Crossing(transfer)).put(*self._places[op.name], lambda: load)
            return
        crossing = self._leaving.setdefault(name, Crossing(transfer))
        crossing.put(*self._places[op.name], lambda: load)
        for planned in [each for each in self._parts[name] if crossing.has(*self._places[each])]:
            mine = crossing.take(*self._places[planned])
            if transfer is _ROWS:  # a message to another device
                self._runner.ready(planned, mine.x.contiguous())
                continue
            move = (transfer.forward if name.endswith(".f") else transfer.backward)(mine.x, mine.kept)
            if move.input_sizes is None or move.output_sizes is None:
                self._runner.ready(planned, move.input.view(-1), move.output.view(-1))
            else:
                self._runner.ready(planned, move.input, move.output, move.input_sizes, move.output_sizes)
            there = self._between.setdefault(to, Crossing(transfer))
            there.put(*self._places[planned], partial(_landed, move, mine))
        if crossing.taken == len(self._parts[name]):
            del self._leaving[name]

    def _take(self, op: Op) -> None:
        """What another device sends."""
        buffer = torch.empty(self._boundary[0], dtype=self._boundary[1])
        self._runner.ready(op.name, buffer)
        i, m = op.layer, op.microbatch
        to = ("f", i + 1, m, 0) if op.name.endswith(".f") else ("b", i - 1, m, len(self.layers[i - 1].segments) - 1)
        self._between[to] = Crossing(_ROWS)
        self._between[to].put(0, 1, lambda: Load(buffer, (), ()))

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
        found: dict[str, Tensor] = {}
        for index, prefix in self._used[op.layer].items():
            found |= {f"{prefix}{name}": view for name, view in self._views_of(index, op).items()}
        return found

    def _views_of(self, index: int, op: Op) -> dict[str, Tensor]:
        holding = self.updates.holdings[index]
        for name in op.deps:
            for part in self.plan.parts.get(name, ()):
                if part in self._gathers:
                    wholes = self._wholes[self._gathers[part].sources[0]]
                    if index in wholes:
                        self.updates.unpack(part, wholes)
                        return holding.flat.views(wholes[index].to(self._boundary[1]))
        if index not in self._views:
            assert holding.whole is not None
            self._views[index] = holding.flat.views(holding.whole.to(self._boundary[1]))
        return self._views[index]

    def _leaf(self, i: int, m: int) -> Leaf:
        if (i, m) not in self._leaves:
            sources, turns = self.layers[i].sources, len(self._batch)
            leaf = self._leaves[i, m] = Leaf([], [{} for _ in range(sources)], self._makers[i, m])
            for index, prefix in self._used[i].items():
                holding = self.updates.holdings[index]
                for source in range(holding.layer.sources):
                    place = source * turns + m
                    buffer = holding.tree.leaf(place)
                    leaf.sums.append((holding.tree, place, buffer))
                    views = holding.views(buffer).items()
                    leaf.views[source] |= {f"{prefix}{name}": view for name, view in views}
        return self._leaves[i, m]


def _sums(op: Op) -> bool:
    """It moves a layer's gradients or new weights, once a step."""
    return bool(op.pieces) and op.microbatch < 0


def _landed(move: Move, load: Load) -> Load:
    return replace(load, x=move.finish(move.output))


_HANDLERS: Mapping[Kind, Callable[[Interpreter, Op], None]] = {
    Kind.FORWARD: Interpreter._forward,
    Kind.RECOMPUTE: Interpreter._recompute,
    Kind.BACKWARD: Interpreter._backward,
    Kind.BACKWARD_INPUT: Interpreter._backward,
    Kind.BACKWARD_WEIGHT: Interpreter._backward_weight,
    Kind.NORM: Interpreter._norm,
    Kind.OPTIMIZE: Interpreter._optimize,
}

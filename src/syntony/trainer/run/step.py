"""One training step on one rank: an interpreter of the Plan's compute order.

    for op in plan.orders[device, "compute"]:
        wait for the communication that it depends on                   runner.wait
        forward | backward | .. one segment of one layer on one microbatch
        make the communication of its results ready                     runner.ready

Every schedule of pipelines, recomputation, delayed weight gradients and any order of gradient sums is an order of the
same few kinds of ops; nothing here knows their names. Segments run on detached inputs, and each backward is one call of
autograd, so an op begins and ends where the plan says.

The Plan is compiled once (compiled_step.py); a run of a step keeps its state in StepState (step_state.py). Policies may
cut ops in parts (`fwd.3.0.1/0`), each on a part of the microbatch (crossing.py): of its sequences or, beside split
gathers and scatters, of each sequence (loop.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, UntypedStorage

from syntony.overlap.run.plan_runner import OverlapError, PlanRunner, Record
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import BACKWARD, FORWARD, OpKey
from syntony.overlap.step.plan import Plan
from syntony.trainer.model.crossing import Crossing, Load
from syntony.trainer.model.layer import ForwardContext, Layer, Move, Transfer
from syntony.trainer.parallel.data_parallel.factors import FactorLeaf
from syntony.trainer.parallel.data_parallel.leaf import Leaf
from syntony.trainer.parallel.data_parallel.updates import Updates
from syntony.trainer.parallel.tensor_parallel.loop import Loop, SumLoop
from syntony.trainer.parallel.tensor_parallel.rotate import Turn
from syntony.trainer.run.compiled_step import COMPUTES, CompiledStep, Gather, Loan, Return, Task, compiled
from syntony.trainer.run.memory.kept import Kept, Tensors, saving
from syntony.trainer.run.step_state import StepState
from syntony.trainer.run.turns import Turned, TurningLeaf, shards_of

_ROWS = Transfer()  # between layers


class Redo(Exception):  # noqa: N818
    """Weights of the previous step have been undone; this step must be run again, on the new ones."""


class Interpreter:
    """Runs steps of a plan on one device.

    layers     the model's layers on this device, by index, fused and cut to this rank's blocks
    last       index of the model's last layer
    shares     of each microbatch in the step's loss
    boundary   shape and dtype of a layer's output
    shards     this rank's index in its group of tensor parallelism, and the group's size
    """

    def __init__(
        self,
        plan: Plan,
        device: int,
        layers: Mapping[int, Layer],
        last: int,
        updates: Updates,
        runner: PlanRunner,
        shares: Sequence[float],
        boundary: tuple[tuple[int, ...], torch.dtype],
        shards: tuple[int, int] = (0, 1),
    ) -> None:
        self.plan, self.layers, self._last = plan, layers, last
        self.updates, self._runner = updates, runner
        self._shares, self._boundary = shares, boundary
        self.compiled: CompiledStep = compiled(plan, device, layers, updates.layers.keys(), boundary[0][0])
        self._place = shards
        self._shards = shards_of(layers, {i: sharded.flat for i, sharded in updates.layers.items()})
        self._loops = {i: Loop(*shards, ways) for i, ways in self.compiled.ways.items()}
        self.state = StepState((), {})
        self._wholes: dict[int, Tensor] = {}  # weights, by layer, and
        self._views: dict[int, dict[str, Tensor]] = {}  # their tensors
        self.step = -1
        self.spans: list[Record] = []  # of compute ops
        self.watch: Callable[[Kept | None], None] = lambda kept: None  # called for segments that ran, and for backwards
        self.between: Callable[[Op], None] = lambda op: None  # called before each op, for background work
        for key, others in self.compiled.followers.items():
            runner.then(key, partial(self._ended, key, others))

    def run(self, microbatches: Sequence[tuple[Tensor, Tensor]], number: int = -1) -> Tensor | None:
        """One step on this rank's microbatches (tokens, targets): their losses, if the device has the head.

        number    the step's number in errors; -1: one more than the last

        Raises Redo if optimistic clipping has undone the last step: the same microbatches must be run again.
        """
        self.step += 1
        gathers, loans = self.compiled.gathers, self.compiled.loans
        for key in self.compiled.followers:  # of the last step
            self._runner.wait(key)
        turned = self.compiled.turned
        later: dict[OpKey, Gather | Return | Loan | Turned] = {**gathers, **self.compiled.returns, **loans, **turned}
        state = self.state = StepState(microbatches, {key: set(one.after) for key, one in later.items()})
        if self._boundary[1] is not torch.float32:
            self._wholes.clear()  # they are the last step's weights, rounded
            self._views.clear()
        self._runner.begin_step(number)
        self.updates.begin(first=self.step == 0)
        for op in self.compiled.receives:
            self._take(op)
        for key in (*gathers, *loans, *turned):
            if not state.waiting[key]:
                self._begin(key)
        for task in self.compiled.tasks:
            op = task.op
            self.between(op)
            ready = time.monotonic()
            self._await(task)
            begin = time.monotonic()
            _HANDLERS[op.kind](self, task)
            state.done.add(op.key)
            self._release()
            for key in task.gathers:
                self._after(op.key, key)
            self.spans.append(Record(op.key, self.step, ready, begin, time.monotonic()))
            self._runner.poll()
        for key in turned:
            self._reach(key)
        if state.void:
            self.updates.finish()
            raise Redo
        losses = [torch.stack(state.losses[m]).mean() for m in sorted(state.losses)]
        return torch.stack(losses) if losses else None

    # ---- ops --------------------------------------------------------------------------------------------------------

    def _await(self, task: Task) -> None:
        """Returns when all its inputs are there. Updates handle what updates wait for."""
        state = self.state
        if task.op.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) and not state.verified:
            state.verified = True
            if self.updates.verify():
                self.updates.foresee()
            elif self.compiled.alone:
                raise Redo
            else:
                state.void, self.updates.rate = True, None
        if task.settles:
            self.updates.settle(task.op.layer)
        for key in task.waits:
            self._reach(key)
            state.dropped.arrived(key)

    def _forward(self, task: Task) -> None:
        op, part, parts = task.op, task.part, task.parts
        i, m, s = where = op.layer, op.microbatch, op.segment
        layer, again = self.layers[i], where in self.compiled.recomputed
        inputs = self._inputs(i, m, s, part, parts)
        with torch.set_grad_enabled(not again):
            kept = self._segment(op, inputs)
        self.state.kept.setdefault(where, {})[part] = kept
        out, *others = (tensor.detach() for tensor in kept.outputs)
        if again:
            kept.outputs, kept.context.leaves = (), {}
        rest = tuple(others)
        load = Load(out, rest, rest)
        if s < len(layer.segments) - 1:
            transfer = layer.transfers[s]
            key = OpKey(transfer.name, i, m, direction=FORWARD)
            self._pass_on(transfer, key, task, load, (FORWARD, i, m, s + 1))
        elif i == self._last:
            self.state.losses.setdefault(m, []).append(out)
        else:
            self._pass_on(_ROWS, OpKey(Kind.SEND, i, m, direction=FORWARD), task, load, (FORWARD, i + 1, m, 0))
        if (i, s) in self._shards:
            self.state.turns.used((i, m, s - 1, FORWARD))
        for t in task.drops:
            self.state.dropped.drop((i, m, t), self.state.kept[i, m, t + 1][0].inputs[0])

    def _recompute(self, task: Task) -> None:
        op, part = task.op, task.part
        kept = self.state.kept[op.layer, op.microbatch, op.segment]
        with torch.enable_grad():
            kept[part] = self._segment(op, kept[part].inputs)

    def _segment(self, op: Op, inputs: Tensors) -> Kept:
        context = ForwardContext(self._weights(op), op.microbatch, self._shares[op.microbatch])
        if (slices := self.compiled.slices) > 1:
            whole, context.piece = divmod(op.microbatch, slices)
            context.sequences = self.state.sequences.setdefault((op.layer, op.segment, whole), {})
        saved = list[UntypedStorage]()
        with saving(lambda tensor: saved.append(tensor.untyped_storage())) if self.compiled.lends else nullcontext():
            outputs = self.layers[op.layer].segments[op.segment](context, *inputs)
        context.weights = {}
        kept = Kept(inputs, outputs, context, saved)
        self.watch(kept)
        return kept

    def _backward(self, task: Task) -> None:
        op, part, parts = task.op, task.part, task.parts
        i, m, s = op.layer, op.microbatch, op.segment
        layer, kept = self.layers[i], self.state.kept[i, m, s][part]
        if i == self._last and s == len(layer.segments) - 1:
            gradients: Tensors = (torch.full_like(kept.outputs[0], self._shares[m] / parts),)
        else:
            load = self._taken((BACKWARD, i, m, s), part, parts)
            gradients = (load.x, *load.rest)
        pairs = [pair for pair in zip(kept.outputs, gradients, strict=True) if pair[0].requires_grad]
        sought = [tensor for tensor in kept.inputs if tensor.requires_grad]
        context, leaf = kept.context, self._leaf(i, m) if op.kind is Kind.BACKWARD_INPUT else self._leaf_of(op)
        self.watch(None)
        context.weights = self._weights(op)
        keeps = task.pieces or leaf.keeps
        context.at_once = leaf.multiply if op.kind is Kind.BACKWARD and not keeps else None
        wanted = [*sought, *context.leaves.values()]
        outputs, into = [output for output, _ in pairs], [gradient for _, gradient in pairs]
        found: Sequence[Tensor | None] = ()
        if wanted:
            found = torch.autograd.grad(outputs, wanted, into, allow_unused=True)
        else:  # its only results are gradients of matrices
            torch.autograd.backward(outputs, into)
        context.weights, kept.outputs = {}, ()
        if (i, s) in self._shards:
            self.state.turns.used((i, m, s - 1, BACKWARD))
        for name, gradient in zip(context.leaves, found[len(sought) :], strict=True):
            if gradient is not None:
                leaf.write(name, gradient)
        context.leaves = {}
        back = {id(tensor): gradient for tensor, gradient in zip(sought, found, strict=False) if gradient is not None}
        out, *rest_back = (back[id(t)] if id(t) in back else _no_gradient(t) for t in kept.inputs)
        if s:
            transfer = layer.transfers[s - 1]
            needed = transfer.backward_needs(tuple(tensor.detach() for tensor in kept.inputs[1:]))
            load = Load(out, tuple(rest_back), needed)
            key = OpKey(transfer.name, i, m, direction=BACKWARD)
            self._pass_on(transfer, key, task, load, (BACKWARD, i, m, s - 1))
        elif i:
            rest_back = rest_back[:-1] if i == self._last else rest_back  # targets have no gradient
            load = Load(out, tuple(rest_back), ())
            before = len(self.layers[i - 1].segments) - 1 if i - 1 in self.layers else 0
            self._pass_on(_ROWS, OpKey(Kind.SEND, i, m, direction=BACKWARD), task, load, (BACKWARD, i - 1, m, before))
        kept.inputs = ()
        if op.kind is Kind.BACKWARD:
            del self.state.kept[i, m, s][part]
            if keeps:
                leaf.multiply_pieces(s, part, parts, context.products)
            self._made(op)

    def _backward_weight(self, task: Task) -> None:
        op, leaf = task.op, self._leaf_of(task.op)
        kept = self.state.kept[op.layer, op.microbatch, op.segment]
        mine, count = ([task.part], task.parts) if task.parts > 1 else (sorted(kept), len(kept))
        loop = self._loops.get(op.layer)
        join = torch.cat if loop is None else partial(loop.join, kept=())
        for part in mine:
            products = kept.pop(part).context.products
            if task.pieces or leaf.keeps or count > task.parts:
                leaf.multiply_pieces(op.segment, part, count, products, join)
                continue
            for product in products:
                leaf.multiply(product)
        self._made(op)

    def _made(self, op: Op) -> None:
        """Called when an op has made, or brought, gradients of weights; the layer's last one starts their sum."""
        i, m = op.layer, op.microbatch
        leaf = self._leaf(i, m)
        leaf.ops -= 1
        if leaf.ops:
            return
        del self.state.leaves[i, m]
        leaf.finish()
        state = self.state
        for where in [where for where in state.turns.came if where[:2] == (i, m)]:
            leaf.sums[0][2][self._shards[i, where[2] + 1].span] += state.turns.came.pop(where)
        for tree, place, buffer in leaf.sums:
            tree.add(place, buffer)
        state.arrived[i] += 1
        if state.arrived[i] == len(self.compiled.turns[i]):
            for index in self.compiled.weights[i]:
                state.withheld[index] = set(self.compiled.late.get(index, ())) - state.done

    def _release(self) -> None:
        """Starts the sums of layers whose gradients are complete, if they wait for nothing else."""
        state = self.state
        for i in [i for i, others in state.withheld.items() if others <= state.done]:
            del state.withheld[i]
            self.updates.complete(i)

    def _rebuild(self, task: Task) -> None:
        self.updates.rebuild(task.op.layer)

    def _norm(self, task: Task) -> None:
        self.updates.clip()

    def _optimize(self, task: Task) -> None:
        self.updates.optimize(task.op.layer)

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def _inputs(self, i: int, m: int, s: int, part: int, parts: int) -> Tensors:
        tensors: Tensors = ()
        if s or i:
            load = self._taken((FORWARD, i, m, s), part, parts)
            tensors = (load.x, *load.rest)
        if not s and i in (0, self._last):  # the first layer takes tokens, the last one targets too
            tensors += (self.state.batch[m][i > 0].chunk(parts)[part],)
        return tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors)

    def _taken(self, where: tuple[str, int, int, int], part: int, parts: int) -> Load:
        crossing = self.state.between[where]
        load = crossing.take(part, parts)
        if crossing.taken == parts:
            del self.state.between[where]
        return load

    def _pass_on(self, transfer: Transfer, key: OpKey, task: Task, load: Load, to: tuple[str, int, int, int]) -> None:
        """Passes to the next segment or layer: by the recorded op of this key, if the plan communicates it."""
        state, compiled, loop = self.state, self.compiled, self._loops.get(task.op.layer)
        if key not in compiled.moves or isinstance(transfer, Turn):
            rule = transfer if loop is None or transfer is _ROWS else loop
            state.between.setdefault(to, Crossing(rule)).put(task.part, task.parts, lambda: load)
            return
        if loop is not None and key in compiled.rounds:
            (self._scatter if task.parts > 1 else self._gather)(loop, key, task, load, to)
            return
        crossing = state.leaving.setdefault(key, Crossing(transfer))
        crossing.put(task.part, task.parts, lambda: load)
        for planned in [each for each in compiled.parts[key] if crossing.has(*compiled.places[each])]:
            mine = crossing.take(*compiled.places[planned])
            if transfer is _ROWS:  # a message to another device; the last step's may not have ended yet
                self._runner.wait(planned)
                self._runner.ready(planned, mine.x.contiguous())
                continue
            move = (transfer.forward if key.direction == FORWARD else transfer.backward)(mine.x, mine.kept)
            self._launch(planned, move)
            if key.direction == FORWARD and self.layers[key.layer].spec.transfers[to[3] - 1].again:
                state.dropped.sources[key.layer, key.microbatch, to[3] - 1] = mine.x
            there = state.between.setdefault(to, Crossing(transfer))
            there.put(*compiled.places[planned], partial(_landed, move, mine))
        if crossing.taken == len(compiled.parts[key]):
            del state.leaving[key]

    def _launch(self, planned: OpKey, move: Move) -> None:
        if move.input_sizes is None or move.output_sizes is None:
            self._runner.ready(planned, move.input.view(-1), move.output.view(-1))
        else:
            self._runner.ready(planned, move.input, move.output, move.input_sizes, move.output_sizes)

    def _gather(self, loop: Loop, key: OpKey, task: Task, load: Load, to: tuple[str, int, int, int]) -> None:
        """Sends the own shard to all, in rounds; received shards are parts of the next segment's input."""
        there = self.state.between[to] = Crossing(loop)
        there.put(0, loop.ranks, lambda: load)
        for planned in self.compiled.parts[key]:
            move, came = loop.gathers(load, planned.part[-1])
            self._launch(planned, move)
            for part, other in came:
                there.put(part, loop.ranks, partial(_itself, other))

    def _scatter(self, loop: Loop, key: OpKey, task: Task, load: Load, to: tuple[str, int, int, int]) -> None:
        """Sends a shard's partial product to its owner, once all of its round are there."""
        there = self.state.between.setdefault(to, Crossing(SumLoop(loop.rank, loop.ranks, loop.ways)))
        if task.part == 0:
            there.put(0, loop.ranks, lambda: load)
            return
        leaving = self.state.leaving.setdefault(key, Crossing(loop))
        leaving.put(task.part, loop.ranks, lambda: load)
        for planned in self.compiled.parts[key]:
            parts = loop.parts(planned.part[-1])
            if task.part in parts and all(leaving.has(part, loop.ranks) for part in parts):
                move, came = loop.scatters([leaving.take(part, loop.ranks) for part in parts], planned.part[-1])
                self._launch(planned, move)
                for part, other in came:
                    there.put(part, loop.ranks, partial(_itself, other))
        if leaving.taken == loop.ranks - 1:
            del self.state.leaving[key]

    def _take(self, op: Op) -> None:
        """Receives from another device."""
        buffer = torch.empty(self._boundary[0], dtype=self._boundary[1])
        self._runner.ready(op.key, buffer)
        i, m = op.layer, op.microbatch
        if op.key.direction == FORWARD:
            to = (FORWARD, i + 1, m, 0)
        else:
            to = (BACKWARD, i - 1, m, len(self.layers[i - 1].segments) - 1)
        self.state.between[to] = Crossing(_ROWS)
        self.state.between[to].put(0, 1, lambda: Load(buffer, (), ()))

    def _after(self, done: OpKey, key: OpKey) -> None:
        """Starts gathers that waited only for `done`, and frees weights that are no longer needed."""
        waiting = self.state.waiting.get(key)
        if waiting is not None:
            waiting.discard(done)
            if not waiting:
                self._begin(key)
        gather = self.compiled.gathers.get(key)
        if gather is not None and gather.last == done:
            self.state.gathered.pop(gather.source, None)

    def _reach(self, key: OpKey) -> None:
        """Returns when the communication of this key has ended; it may first have to wait for other messages."""
        compiled = self.compiled
        while (key in compiled.loans or key in compiled.turned) and (others := self.state.waiting.get(key)):
            other = next((other for other in others if other in compiled.moves), None)
            if other is None:
                raise OverlapError(f"the plan waits for {key!r} before it computes {next(iter(others))!r} for it")
            self._reach(other)
        self._runner.wait(key)

    def _ended(self, key: OpKey, others: Sequence[OpKey]) -> None:
        turn = self.compiled.turned.get(key)
        if turn is None:
            self.state.lent.ended(key)
        elif turn.gradient:
            del self.state.turns.sent[turn.where]
        for other in others:
            self._after(key, other)
        if turn is not None and turn.home:
            self._made(turn.op)
            self._release()

    def _begin(self, key: OpKey) -> None:
        """Begins what no longer waits for anything."""
        del self.state.waiting[key]
        if key in self.compiled.gathers:
            self._begin_gather(key)
        elif key in self.compiled.returns:
            self._begin_return(key)
        elif key in self.compiled.turned:
            self._begin_turn(self.compiled.turned[key])
        else:
            op, text = self.compiled.loans[key].op, [tensor for pair in self.state.batch for tensor in pair]
            self._runner.ready(key, self.state.lent.begin(op, self.state.kept, text))

    def _begin_return(self, key: OpKey) -> None:
        back = self.compiled.returns[key]
        where = back.op.layer, back.op.microbatch, back.transfer
        self._launch(key, self.state.dropped.again(key, where, self.layers[where[0]].transfers[where[2]]))

    def _begin_turn(self, turn: Turned) -> None:
        i, _, t, _ = turn.where

        def own() -> Tensor:
            self.updates.settle(i)
            return self._whole(i)[self._shards[i, t + 1].span]

        self._launch(turn.op.key, self.state.turns.begin(turn, own, self._place))

    def _begin_gather(self, key: OpKey) -> None:
        gather = self.compiled.gathers[key]
        wholes = self.state.gathered.setdefault(gather.source, {})
        for index in gather.layers - set(wholes):
            wholes[index] = torch.empty(self.updates.layers[index].flat.elements)
        self.updates.gather(key, wholes)

    def _weights(self, op: Op) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for index, prefix in self.compiled.weights[op.layer].items():
            found |= {f"{prefix}{name}": view for name, view in self._views_of(index, op).items()}
        shard = self._shards.get((op.layer, op.segment))
        if shard is not None:
            way = FORWARD if op.kind is Kind.FORWARD else BACKWARD
            found |= shard.views(self.state.turns.weights[op.layer, op.microbatch, op.segment - 1, way])
        return found

    def _views_of(self, index: int, op: Op) -> dict[str, Tensor]:
        """A layer's weights; of gathered ones, those that the op waits for: all, a part, or none."""
        sharded, whole = self.updates.layers[index], None
        for key in op.deps:
            for part in self.plan.parts.get(key, (key,)):
                gather = self.compiled.gathers.get(part)
                if gather is not None:
                    wholes = self.state.gathered[gather.source]
                    if index in wholes:
                        self.updates.unpack(part, wholes)
                        whole = wholes[index]
        if whole is not None:
            return sharded.flat.views(whole.to(self._boundary[1]))
        if sharded.whole is None:
            return {}
        if index not in self._views:
            self._views[index] = sharded.flat.views(self._whole(index))
        return self._views[index]

    def _whole(self, index: int) -> Tensor:
        """A layer's weights, as they are computed with."""
        if index not in self._wholes:
            whole = self.updates.layers[index].whole
            assert whole is not None
            self._wholes[index] = whole.to(self._boundary[1])
        return self._wholes[index]

    def _leaf_of(self, op: Op) -> Leaf:
        """Where an op leaves its gradients of weights."""
        i, m, s = op.layer, op.microbatch, op.segment
        leaf, shard = self._leaf(i, m), self._shards.get((i, s))
        if shard is None:
            return leaf
        return TurningLeaf(leaf, shard.views(self.state.turns.gradient(i, m, s - 1, shard)))

    def _leaf(self, i: int, m: int) -> Leaf:
        leaves, turns = self.state.leaves, self.compiled.turns[i]
        factors = self.updates.layers[i].factors if i in self.updates.layers else None
        if (i, m) not in leaves and factors is not None:
            leaves[i, m] = FactorLeaf.for_row(factors, turns[m], self.compiled.makers[i, m])
        if (i, m) not in leaves:
            leaf = leaves[i, m] = Leaf([], [{} for _ in range(self.layers[i].sources)], self.compiled.makers[i, m])
            for index, prefix in self.compiled.weights[i].items():
                sharded = self.updates.layers[index]
                for source in range(sharded.layer.sources):
                    place = source * len(turns) + turns[m]
                    buffer = sharded.tree.leaf(place)
                    leaf.sums.append((sharded.tree, place, buffer))
                    views = sharded.views(buffer).items()
                    leaf.views[source] |= {f"{prefix}{name}": view for name, view in views}
        return leaves[i, m]


def _no_gradient(tensor: Tensor) -> Tensor:
    """What is passed back for an input without a gradient: zeros; for numbers that have none, themselves."""
    return torch.zeros_like(tensor) if tensor.is_floating_point() else tensor


def _itself(load: Load) -> Load:
    return load


def _landed(move: Move, load: Load) -> Load:
    return replace(load, x=move.finish(move.output))


_HANDLERS: Mapping[Kind, Callable[[Interpreter, Task], None]] = {
    Kind.FORWARD: Interpreter._forward,
    Kind.RECOMPUTE: Interpreter._recompute,
    Kind.BACKWARD: Interpreter._backward,
    Kind.BACKWARD_INPUT: Interpreter._backward,
    Kind.BACKWARD_WEIGHT: Interpreter._backward_weight,
    Kind.REBUILD: Interpreter._rebuild,
    Kind.NORM: Interpreter._norm,
    Kind.OPTIMIZE: Interpreter._optimize,
}
assert set(_HANDLERS) == set(COMPUTES)

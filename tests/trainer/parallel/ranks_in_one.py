"""All ranks of a mesh side by side in one process: layers run in lockstep, and what travels is handed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from syntony.overlap.step.op import Kind
from syntony.trainer.config import Model, Parallel
from syntony.trainer.model.layer import ForwardContext, Layer, Move
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.rotate import Turn

Tensors = tuple[Tensor, ...]


def travel(kind: Kind, moves: Sequence[Move]) -> list[Tensor]:
    """What the group's ranks have afterwards; `moves` in the order of the group."""
    ranks, inputs = len(moves), [move.input for move in moves]
    if kind is Kind.ALL_REDUCE:
        found = [torch.stack(inputs).sum(0)] * ranks
    elif kind is Kind.ALL_GATHER:
        found = [torch.stack(inputs)] * ranks
    elif kind is Kind.REDUCE_SCATTER:
        found = list(torch.stack(inputs).sum(0).chunk(ranks))
    else:
        assert kind in (Kind.ALL_TO_ALL, Kind.SHIFT)
        parts = [m.input.split(list(m.input_sizes)) if m.input_sizes else m.input.chunk(ranks) for m in moves]
        found = [torch.cat([parts[source][rank] for source in range(ranks)]) for rank in range(ranks)]
        for move, parts_in in zip(moves, zip(*parts, strict=True), strict=True):
            assert not move.output_sizes or [len(part) for part in parts_in] == list(move.output_sizes)
    for move, result in zip(moves, found, strict=True):
        assert move.input.is_contiguous()
        assert move.output.is_contiguous()
        move.output.copy_(result.reshape(move.output.shape))
    return [move.finish(move.output) for move in moves]


@dataclass
class Result:
    """Per rank: the loss, and gradients by layer and weight."""

    losses: list[float]
    gradients: list[dict[str, Tensor]]


def step(
    models: list[list[Layer]], meshes: list[Mesh], batches: list[tuple[Tensor, Tensor]], seed: int, share: float
) -> Result:
    """One forward and backward of one microbatch per rank, in float64; the loss of every rank counts `share`."""
    ranks = range(len(meshes))
    weights = [
        {layer.name: {w.name: w.begin(seed, layer.name).double() for w in layer.weights} for layer in model}
        for model in models
    ]
    values: list[Tensors] = [(tokens,) for tokens, _ in batches]
    trace = []

    def over(index: int, s: int, forward: bool, x: list[Tensor], kept: list[Tensors]) -> list[Tensor]:
        planned, transfer_of = models[0][index].spec.transfers[s], [model[index].transfers[s] for model in models]
        kind = planned.forward if forward else planned.backward
        if kind is None or planned.rotates:
            return x
        found: list[Tensor] = [torch.empty(0)] * len(x)
        for group in meshes[0].members(planned.lane):
            moves = [(transfer_of[r].forward if forward else transfer_of[r].backward)(x[r], kept[r]) for r in group]
            for r, got in zip(group, travel(kind, moves), strict=True):
                found[r] = got
        return found

    def turned(r: int, index: int, s: int) -> tuple[int, tuple[str, ...]]:
        """The rank whose shard rank r has in a segment, and the names of its weights."""
        transfer = models[r][index].transfers[s - 1] if s else None
        if not isinstance(transfer, Turn):
            return r, ()
        group = next(group for group in meshes[0].members("tp") if r in group)
        by = models[r][index].spec.transfers[s - 1].rotates
        return group[(group.index(r) - by) % len(group)], transfer.weights

    for index in range(len(models[0])):
        layer = models[0][index]
        if index == len(models[0]) - 1:
            values = [(*value, targets) for value, (_, targets) in zip(values, batches, strict=True)]
        for s in range(len(layer.segments)):
            row = []
            for r in ranks:
                name, (owner, names) = models[r][index].name, turned(r, index, s)
                here = weights[r][name] | {each: weights[owner][name][each] for each in names}
                context = ForwardContext(here, 0, share)
                inputs = tuple(v.detach().requires_grad_(v.is_floating_point()) for v in values[r])
                outputs = models[r][index].segments[s](context, *inputs)
                row.append((context, inputs, outputs))
            values = [tuple(v.detach() for v in outputs) for _, _, outputs in row]
            trace.append((index, s, row))
            if s < len(layer.segments) - 1:
                kept = [value[1:] for value in values]
                moved = over(index, s, True, [value[0].contiguous().clone() for value in values], kept)
                values = [(x, *rest) for x, rest in zip(moved, kept, strict=True)]
    losses = [float(value[0]) for value in values]
    upstream: list[list[Tensor | None]] = [[torch.tensor(share, dtype=value[0].dtype)] for value in values]
    found: list[dict[str, Tensor]] = [{} for _ in ranks]
    for index, s, row in reversed(trace):
        layer = models[0][index]
        if s < len(layer.segments) - 1:
            kept = [tuple(o.detach() for o in outputs[1:]) for _, _, outputs in row]
            moved_back = [g[0] for g in upstream]
            if moved_back[0] is not None:
                first = [g.contiguous().clone() for g in moved_back if g is not None]
                upstream = [[x, *g[1:]] for x, g in zip(over(index, s, False, first, kept), upstream, strict=True)]
        for r in ranks:
            context, inputs, outputs = row[r]
            pairs = [(o, g) for o, g in zip(outputs, upstream[r], strict=False) if g is not None and o.requires_grad]
            wanted = [i for i in inputs if i.requires_grad]
            leaves = list(context.leaves.values())
            of, into, made = [o for o, _ in pairs], [g for _, g in pairs], tuple[Tensor | None, ...]()
            if wanted + leaves:
                made = torch.autograd.grad(of, wanted + leaves, into, allow_unused=True)
            else:
                torch.autograd.backward(of, into)
            given = iter(made)
            upstream[r] = [next(given) if i.requires_grad else None for i in inputs]
            mine = models[r][index]
            labels = {weight.name: mine.label(weight) for weight in mine.weights}
            for leaf, gradient in zip(context.leaves, given, strict=True):
                if gradient is not None:
                    found[r][labels[leaf]] = found[r].get(labels[leaf], 0) + gradient
            for product in context.products:
                gradient = torch.zeros_like(weights[r][mine.name][product.weight])
                product.into(gradient)
                label, (owner, names) = labels[product.weight], turned(r, index, s)
                mine_of = found[owner if product.weight in names else r]
                mine_of[label] = mine_of.get(label, 0) + gradient
    return Result(losses, found)


def assemble(models: list[list[Layer]], meshes: list[Mesh], result: Result) -> dict[str, Tensor]:
    """Gradients of whole weights, summed over data ranks and over the ranks that share them."""
    found: dict[str, Tensor] = {}
    for layers, mesh, gradients in zip(models, meshes, result.gradients, strict=True):
        for layer in layers:
            for weight in layer.weights:
                split = bool(weight.whole)
                if not split and not weight.shared and mesh.place["tp"]:
                    continue  # the same on all ranks of tp
                total = found.setdefault(layer.label(weight), torch.zeros(weight.full_shape, dtype=torch.float64))
                place = tuple(
                    slice(a, a + n)
                    for a, n in zip(weight.offset or (0,) * len(weight.shape), weight.shape, strict=True)
                )
                total[place] += gradients[layer.label(weight)]
    return found


def meshes_of(**sizes: object) -> list[Mesh]:
    parallel = Parallel(**sizes)  # type: ignore[arg-type]
    world = Mesh(parallel).world
    return [Mesh(parallel, rank) for rank in range(world)]


def tiny(**changes: object) -> Model:
    return Model(**{"blocks": 2, "width": 16, "heads": 4, "hidden": 32, "context": 16, "vocabulary": 12, **changes})  # type: ignore[arg-type]

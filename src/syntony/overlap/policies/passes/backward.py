"""Splits the backward: gradients of inputs (X), which the layer below needs, and of weights (W), which none needs.

bwd 2  bwd 1  bwd 0             X2 W2 X1 W1 X0 W0               split
                                X2 W2 X1 X0 W0 W1               the first 2 delayed: layer 0's sum leaves first
                                bwd 2 X1 X0 W0 W1               the same, if only X depends on X

Without this, the sums that the next step needs first begin last, with nothing to hide them. Delayed W hides them: the
sum of layer 0 moves beside W1, that of layer 1 beside the first forwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.rotation import is_gradient


def split_backward(graph: Graph, which: Collection[OpKey] | None = None) -> Graph:
    """Every `bwd` (or `which` of them, all segments of each layer and microbatch) becomes `bwd_x`, directly followed by
    `bwd_w`."""
    halves: dict[OpKey, tuple[OpKey, OpKey]] = {}
    weights_of: dict[tuple[int, int], list[OpKey]] = {}  # W of all segments and parts, by layer and microbatch
    for op in graph:
        if op.kind is Kind.BACKWARD and (which is None or op.key in which):
            halves[op.key] = op.key._replace(kind=Kind.BACKWARD_INPUT), op.key._replace(kind=Kind.BACKWARD_WEIGHT)
            weights_of.setdefault((op.layer, op.microbatch), []).append(halves[op.key][1])

    def edges(op: Op, before: Sequence[OpKey]) -> tuple[OpKey, ...]:
        # Sums of gradients and updates depend on W, as do gradients that are passed on, everything else on X.
        sums = op.microbatch < 0
        found = []
        for key in before:
            if sums and key in halves:
                found += weights_of[graph[key].layer, graph[key].microbatch]
            elif key in halves and is_gradient(graph, op):
                found.append(halves[key][1])
            elif op.key in halves and is_gradient(graph, graph[key]):
                continue  # room for gradients, which X makes none of
            else:
                found.append(halves[key][0] if key in halves else key)
        return tuple(dict.fromkeys(found))

    def rewired() -> Iterator[Op]:
        for op in graph:
            if op.key not in halves:
                yield op._replace(deps=edges(op, op.deps), lagged=edges(op, op.lagged))
                continue
            inputs, weights = graph.layers[op.layer].halves if graph.layers else (1.0, 1.0)
            share = inputs / ((inputs + weights) or 1.0)
            first, second = halves[op.key]
            later = min(op.frees, graph.layers[op.layer].products) if graph.layers and op.segment == 0 else 0.0
            yield op._replace(
                key=first,
                kind=Kind.BACKWARD_INPUT,
                deps=edges(op, op.deps),
                lagged=edges(op, op.lagged),
                amount=op.amount * share,
                of=tuple(source._replace(kind=Kind.BACKWARD_INPUT) for source in op.of),
                holds=0.0,
                frees=op.frees - later,
            )
            yield op._replace(
                key=second,
                kind=Kind.BACKWARD_WEIGHT,
                deps=(first,),
                lagged=(),
                holds=op.holds,
                amount=op.amount * (1 - share),
                of=tuple(source._replace(kind=Kind.BACKWARD_WEIGHT) for source in op.of),
                frees=later,
            )

    return graph.with_ops(rewired())


def last_backwards(graph: Graph, first: int) -> set[OpKey]:
    """In a graph without stages, each `bwd` of the last microbatch of the first `first` layers."""
    backwards = [op for op in graph if op.kind is Kind.BACKWARD]
    last = {op.layer: op.microbatch for op in backwards}
    layers = sorted(last)[:first]
    return {op.key for op in backwards if op.layer in layers and op.microbatch == last[op.layer]}


def delay_weight_grad(graph: Graph, first: int) -> Graph:
    """Moves W of each device's first layers behind all X of the microbatch, the very first layer's before the others:
    its sum, which the next step needs first, leaves earlier ("reverse first-k", Oh et al., EuroSys 2022)."""
    rank: dict[int, int] = {}
    for device in graph.devices:
        layers = sorted({op.layer for op in graph if op.device == device and op.kind is Kind.BACKWARD_WEIGHT})
        rank |= {layer: number for number, layer in enumerate(layers)}

    def rewired() -> Iterator[Op]:
        for device in graph.devices:
            late: dict[int, list[Op]] = {}
            ops = [op for op in graph if op.device == device]
            lowest = min((layer for layer in rank if any(op.layer == layer for op in ops)), default=-1)
            for op in ops:
                if op.kind is Kind.BACKWARD_WEIGHT and rank[op.layer] < first:
                    late.setdefault(op.microbatch, []).append(op)
                    if op.layer == lowest and op.segment == 0:
                        yield from _released(late, op.microbatch, rank)
                else:
                    yield op
            for microbatch in list(late):
                yield from _released(late, microbatch, rank)

    return graph.with_ops(rewired())


def _released(late: dict[int, list[Op]], microbatch: int, rank: dict[int, int]) -> list[Op]:
    return sorted(late.pop(microbatch, []), key=lambda op: (rank[op.layer], -op.segment))

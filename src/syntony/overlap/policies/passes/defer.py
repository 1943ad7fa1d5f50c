"""Moves updates of weights across the boundary between steps: the end of a step becomes the head of the next.

    .. bwd 1, bwd 0, opt 1, opt 0 | fwd 0, fwd 1 ..          .. bwd 1, bwd 0 | opt 0, fwd 0, opt 1, fwd 1 ..

So a forward waits only for its own weights while the sums of other layers are still in flight. An `opt` that waits for
sums of the previous step (`lagged`) does nothing in the first step, and remains to be done after the last.
"""

from __future__ import annotations

from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey


def defer(graph: Graph, share: float = 1.0) -> Graph:
    """Moves optimizers, norms, exchanges of islands and gathers of weights before the first Op that waits for them.
    Apply only once.

    share    of each device's layers; the others, evenly spread, are updated at once, so that their weights can be
             gathered in gaps of the same step. With a norm, all layers
    """
    later: set[int] = set()
    for device in graph.devices:
        layers = sorted({op.layer for op in graph if op.device == device and op.kind is Kind.OPTIMIZE})
        later |= {layer for i, layer in enumerate(layers) if int((i + 1) * (1 - share)) == int(i * (1 - share))}
    norms = {op.key for op in graph if op.kind is Kind.NORM}
    held = {op.key for op in graph if op.kind is Kind.OPTIMIZE and (op.layer in later or norms.intersection(op.deps))}
    moved = norms | held
    after = [op for op in graph if op.kind is Kind.ALL_GATHER or op.lane == "islands"]
    while more := {op.key for op in after if moved.intersection(op.deps)} - moved:
        moved |= more
    if not moved or any(graph.before(graph[key]) for key in moved):
        return graph

    def turned(op: Op) -> Op:
        if op.key in moved:
            before = [key for key in op.deps if key not in moved]
            return op._replace(deps=tuple(key for key in op.deps if key in moved), lagged=(*op.lagged, *before))
        now = [key for key in op.lagged if key in moved]
        if not now:
            return op
        return op._replace(deps=(*op.deps, *now), lagged=tuple(key for key in op.lagged if key not in moved))

    ops = [turned(op) for op in graph]
    waiting = {op.key: op for op in ops if op.key in moved}
    ordered: list[Op] = []

    def place(key: OpKey) -> None:
        op = waiting.pop(key, None)
        if op is not None:
            for dep in op.deps:
                place(dep)
            ordered.append(op)

    for op in ops:
        if op.key not in moved:
            for dep in op.deps:
                place(dep)
            ordered.append(op)
    # Ops that only verify, and layers without a forward, stay at the end.
    ordered += waiting.values()
    return graph.with_ops(ordered)


def over_the_cut(graph: Graph) -> list[Graph]:
    """Deferred updates; if weights are gathered afterwards, variants for more or fewer layers."""
    gathers = any(op.kind is Kind.ALL_GATHER and op.microbatch < 0 for op in graph)
    return [defer(graph, share) for share in ((1.0, 0.83, 0.75, 0.67, 0.5) if gathers else (1.0,))]

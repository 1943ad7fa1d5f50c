"""Experts that come to the tokens, where that is less to move than tokens that go to the experts.

replicate_hot_experts   what most tokens want is copied to all ranks before its layer; the others travel as before
move_experts            no token travels: every rank gathers all experts of the layer
"""

from __future__ import annotations

from collections.abc import Iterator

from collectives.overlap.graph import Graph
from collectives.overlap.op import Kind, Op
from topologies.command import UserError


def replicate_hot_experts(graph: Graph, tokens: float, weights: float) -> Graph:
    """`tokens`: the share of tokens that the copied experts take off the wires; `weights`: what a rank's experts that
    are copied are of its weights. Copies come as `hot.{layer}.f` and their gradients go back as `hot.{layer}.b`."""
    return _brought(graph, "hot", Kind.BROADCAST, Kind.ALL_REDUCE, weights * graph.groups.get("ep", 1), 1 - tokens)


def move_experts(graph: Graph) -> Graph:
    """All experts to all ranks as `experts.{layer}.f`, before the layer; gradients back as `experts.{layer}.b`."""
    return _brought(graph, "experts", Kind.ALL_GATHER, Kind.REDUCE_SCATTER, graph.groups.get("ep", 1), 0.0)


def _brought(graph: Graph, word: str, bring: Kind, back: Kind, copies: float, travel: float) -> Graph:
    expert = {i for i, layer in enumerate(graph.layers) if layer.expert}
    if not expert or "ep" not in graph.groups:
        raise UserError("this step has no experts that lie on other ranks (ep=1)")
    gone = {op.name: op for op in graph if op.kind is Kind.ALL_TO_ALL and op.layer in expert and travel == 0}

    def edges(names: tuple[str, ...]) -> Iterator[str]:
        for name in names:
            yield from edges(gone[name].deps) if name in gone else (name,)

    begun: set[int] = set()
    ended: dict[int, list[str]] = {}
    found: list[Op] = []
    for op in graph:
        if op.name in gone:
            continue
        layer, size = op.layer, copies * graph.layers[op.layer].weights if op.layer >= 0 else 0.0
        deps = tuple(edges(op.deps))
        if layer in expert and op.kind is Kind.FORWARD and op.segment == 1:
            if layer not in begun:
                begun.add(layer)
                lagged = next(o.lagged for o in graph if o.layer == layer and o.kind is Kind.FORWARD and o.segment == 0)
                found.append(
                    Op(f"{word}.{layer}.f", bring, op.device, "ep", size, lagged=lagged, layer=layer, holds=size)
                )
            deps = (*deps, f"{word}.{layer}.f")
        elif layer in expert and op.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT) and op.segment == 1:
            ended.setdefault(layer, []).append(op.name)
        elif layer in expert and op.microbatch < 0 and layer in ended:
            # The layer's own update waits until the copies' gradients are back.
            returned = Op(
                f"{word}.{layer}.b", back, op.device, "ep", size, tuple(ended.pop(layer)), layer=layer, frees=size
            )
            found.append(returned)
            deps = (*deps, returned.name)
        amount = op.amount * travel if op.kind is Kind.ALL_TO_ALL and layer in expert else op.amount
        found.append(op._replace(deps=deps, amount=amount))
    return graph.with_ops(found)

"""Experts that most tokens want, copied to all ranks before their layer; other tokens travel as before."""

from __future__ import annotations

from collectives.overlap.graph import Graph
from collectives.overlap.op import Kind, Op
from topologies.command import UserError


def replicate_hot_experts(graph: Graph, tokens: float, weights: float) -> Graph:
    """`tokens`: the share of tokens that the copied experts take off the wires; `weights`: what a rank's experts that
    are copied are of its weights. Copies come as `hot.{layer}.f` and their gradients go back as `hot.{layer}.b`."""
    expert = {i for i, layer in enumerate(graph.layers) if layer.expert}
    if not expert or "ep" not in graph.groups:
        raise UserError("this step has no experts that lie on other ranks (ep=1)")
    copies = weights * graph.groups["ep"]
    begun: set[int] = set()
    ended: dict[int, list[str]] = {}
    found: list[Op] = []
    for op in graph:
        layer, size, deps = op.layer, copies * graph.layers[op.layer].weights if op.layer >= 0 else 0.0, op.deps
        if layer in expert and op.kind is Kind.FORWARD and op.segment == 1:
            if layer not in begun:
                begun.add(layer)
                lagged = next(o.lagged for o in graph if o.layer == layer and o.kind is Kind.FORWARD and o.segment == 0)
                brought = Op(f"hot.{layer}.f", Kind.BROADCAST, op.device, "ep", size, lagged=lagged, layer=layer)
                found.append(brought._replace(holds=size))
            deps = (*deps, f"hot.{layer}.f")
        elif layer in expert and op.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT) and op.segment == 1:
            ended.setdefault(layer, []).append(op.name)
        elif layer in expert and op.microbatch < 0 and layer in ended:
            # The layer's own update waits until the copies' gradients are back.
            after = tuple(ended.pop(layer))
            back = Op(f"hot.{layer}.b", Kind.ALL_REDUCE, op.device, "ep", size, after, layer=layer, frees=size)
            found.append(back)
            deps = (*deps, back.name)
        amount = op.amount * (1 - tokens) if op.kind is Kind.ALL_TO_ALL and layer in expert else op.amount
        found.append(op._replace(deps=deps, amount=amount))
    return graph.with_ops(found)

"""Sends gradients as the factors of a product: x and dy, of a number of rows, instead of dy^T x.

    dense       bwd: dx, dy^T x  ─▶ all_reduce of M x N numbers                ─▶ update
    factors     bwd: dx          ─▶ all_gather of rows x (M + N) of every rank ─▶ sum of dy^T x, here ─▶ update

All ranks compute the same products as one process would, and add them in its order, so the result is bitwise exact. It
pays if matrices are large and ranks x rows few. Sufficient factor broadcasting, and the choice between the two
("HybComm"): Zhang et al., Poseidon (USENIX ATC 2017), section 3.2; its servers are sums over all ranks here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from syntony.base.command import UserError
from syntony.overlap.policies.passes.relayout import layout_of
from syntony.overlap.step.cost import Cost, line_of
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


def can_factor(graph: Graph) -> bool:
    """Whether the step sums whole gradients of layers that are on one device."""
    layout = graph.layout
    return layout is not None and "dp" in layout.groups and not layout.zero and layout.copies == 1


def with_factors(graph: Graph, layers: Collection[int]) -> Graph:
    """The step with the gradients of these layers (by number, among those with factors) summed that way."""
    if not layers:
        return graph
    own = enumerate(graph.layers)
    return generate([replace(layer, sums="factors") if i in layers else layer for i, layer in own], layout_of(graph))


def factored(graph: Graph) -> list[int]:
    """The layers that have factors. Raises UserError unless all ranks sum whole gradients."""
    if not can_factor(graph):
        raise UserError("factors are sent where whole gradients are summed: dp must be 2 or more, and zero 0")
    return [i for i, one in enumerate(graph.layers) if one.factors and not one.shared and not one.expert]


def lighter(graph: Graph, cost: Cost) -> list[int]:
    """The layers whose factors take their link for a shorter time than their gradients."""
    layout, wires = layout_of(graph), cost.wires_of(graph)
    gather, reduce = line_of(wires, "dp", Kind.ALL_GATHER), line_of(wires, "dp", Kind.ALL_REDUCE)
    microbatches = layout.groups["dp"] * layout.units
    return [
        i
        for i in factored(graph)
        if gather.beta * graph.layers[i].factors * microbatches < reduce.beta * graph.layers[i].weights
    ]

"""Communication inside the layers of a step, in every microbatch: its lanes, and parts of it that take turns."""

from __future__ import annotations

from collections.abc import Collection

from syntony.base.command import UserError
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.rotation import is_turn


def inner_lanes(graph: Graph, *lanes: str) -> tuple[str, ...]:
    """The lanes with transfers in every microbatch, beside those of rotating weights. UserError if there are none."""
    inside = [op for op in graph if op.lane in lanes and op.microbatch >= 0 and not op.pieces]
    found = {op.lane for op in inside if not is_turn(graph, op)}
    if not found:
        if "ep" in lanes and graph.layout is not None and graph.layout.relay > 1:
            raise UserError(f"relay={graph.layout.relay} sends tokens in two exchanges, which stay whole; set relay=1")
        what = "only weights move" if inside else "nothing moves"
        raise UserError(f"{what} on {' or '.join(lanes)} inside the layers of this step")
    return tuple(sorted(found))


def in_turn(graph: Graph, count: int, lanes: Collection[str]) -> Graph:
    """Cuts transfers on these lanes into `count` parts that take turns: one is computed while another travels."""
    return relayout.parts_in_turn(chunk(graph, count, lanes))

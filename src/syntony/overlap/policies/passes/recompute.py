"""Activations computed again earlier than the backward asks for them, while the device would wait for communication."""

from __future__ import annotations

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey


def hide_recompute(graph: Graph, ahead: int) -> Graph:
    """Every recompute may begin once its device has reached the Op `ahead` places before its own: how early decides how
    much memory it takes. Where in between it goes is the order's to say (it is `movable`)."""
    if not any(op.kind is Kind.RECOMPUTE for op in graph):
        raise UserError("this step computes no activations again; set recompute=true")
    done: dict[int, list[OpKey]] = {}
    found = []
    for op in graph:
        if op.kind is Kind.RECOMPUTE:
            before = done.get(op.device, [])[-ahead:][:1]
            op = op._replace(deps=tuple(dict.fromkeys((*op.deps, *before))))
        elif op.lane == COMPUTE:
            done.setdefault(op.device, []).append(op.key)
        found.append(op)
    return graph.with_ops(found)

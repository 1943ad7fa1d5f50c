"""Plans for the tests of what reads plans."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import layers_of
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan

key = OpKey.parse
MODEL = model_named("gpt:hidden=64,blocks=3,heads=8,seq=64,experts=4,every=3")
COST = Cost(
    flops=2e9,
    memory=1e-9,
    wires={lane: ring_wire(2, 2e7, 1e-4, link) for lane, link in [
        ("dp", "network"), ("edp", "network"), ("pp", "network"), ("replicas", "network"),
        ("tp", "box"), ("ep", "box"), ("cp", "box"),
    ]},
)  # fmt: skip

LAYOUTS = st.builds(
    lambda dp, tp, pp, ep, zero, microbatches, schedule, clip, recompute: Layout(
        dp=dp, tp=tp, pp=pp, ep=min(ep, dp), zero=zero, microbatches=microbatches * pp, schedule=schedule, clip=clip,
        recompute=recompute,
    ),
    st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]),
    st.integers(0, 2), st.integers(1, 2), st.sampled_from(["gpipe", "1f1b", "zb1p"]), st.sampled_from(list(Clip)),
    st.booleans(),
)  # fmt: skip


def step(layout: Layout) -> Graph:
    """The step of MODEL."""
    return generate(layers_of(MODEL, layout), layout)


def in_order(graph: Graph) -> Plan:
    """Every lane in the order of the graph."""
    orders: dict[tuple[int, str], list[OpKey]] = {}
    for op in graph:
        orders.setdefault((op.device, op.lane), []).append(op.key)
    plan = Plan("in order", graph, {lane: tuple(keys) for lane, keys in orders.items()})
    return replace(plan, clip=graph.layout.clip) if graph.layout else plan

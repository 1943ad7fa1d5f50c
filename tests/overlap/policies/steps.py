"""Steps on which policies are tried, and what they cost."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import replace

from syntony.base.command import UserError
from syntony.overlap.policies.table import POLICIES, policy
from syntony.overlap.predict.simulation import Timeline, simulate
from syntony.overlap.step.cost import Cost, Wire, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.plan import Plan
from tests.overlap.models import moving

WEIGHTS = 1 << 22
MOVED = 1 << 20


def dense(count: int = 12) -> list[LayerSpec]:
    return [LayerSpec(f"layer{i}", WEIGHTS, (1 / 3 / count,), activations=MOVED, output=MOVED) for i in range(count)]


def inner(
    count: int, lane: str, words: tuple[str, str], kinds: tuple[Kind | None, ...], expert: bool
) -> list[LayerSpec]:
    parts = "experts" if expert else "rows"
    gaps = (
        CommSpec(words[0], lane, kinds[0], kinds[1], MOVED, parts, 240),
        CommSpec(words[1], lane, kinds[2], kinds[3], MOVED, parts, 240),
    )
    work = (0.1 / 3 / count, 0.8 / 3 / count, 0.1 / 3 / count)
    return [LayerSpec(f"layer{i}", WEIGHTS, work, gaps, MOVED, MOVED, expert) for i in range(count)]


def tensor(count: int = 8) -> list[LayerSpec]:
    kinds = (None, Kind.ALL_REDUCE, Kind.ALL_REDUCE, None)
    return inner(count, "tp", ("enter", "leave"), kinds, False)


def experts(ep: int = 4, weights: int = WEIGHTS) -> list[LayerSpec]:
    found = inner(8, "ep", ("dispatch", "combine"), (Kind.ALL_TO_ALL,) * 4, True)
    found = [replace(layer, weights=weights) for layer in found]
    return [replace(layer, moved=moving(layer, ep)) for layer in found]


STEPS = {
    "dp": (dense(), Layout(dp=4)),
    "clip": (dense(), Layout(dp=4, clip=Clip.EXACT)),
    "optimistic": (dense(), Layout(dp=4, clip=Clip.OPTIMISTIC, microbatches=2)),
    "zero1": (dense(), Layout(dp=4, zero=1)),
    "zero3": (dense(), Layout(dp=4, zero=3, microbatches=2)),
    "tp": (tensor(), Layout(dp=2, tp=4, microbatches=2)),
    "recompute": (tensor(), Layout(tp=4, microbatches=2, recompute=True)),
    "ep": (experts(), Layout(dp=4, ep=4, microbatches=2)),
    "small experts": (experts(4, WEIGHTS // 8), Layout(dp=4, ep=4, microbatches=2)),
    "tp 4": (tensor(), Layout(tp=4, microbatches=4)),
    "dp x ep": (experts(2), Layout(dp=4, ep=2, microbatches=2)),
    "pp": (dense(8), Layout(pp=4, dp=2, microbatches=8)),
    "islands": (dense(), Layout(dp=4, islands=2, local=4, zero=1, clip=Clip.EXACT)),
    "islands late": (dense(), Layout(dp=4, islands=2, delay=2)),
}


@functools.cache
def plans_of(step: str) -> dict[str, tuple[Plan, Timeline]]:
    """By policy that has something to do with that step."""
    return plans_for(generate(*STEPS[step]))


def plans_for(graph: Graph) -> dict[str, tuple[Plan, Timeline]]:
    cost = priced(graph, alpha=1e-3)
    found = {}
    for name, one in POLICIES.items():
        with suppress(UserError):
            plan = one.plan(graph, cost)
            found[name] = plan, simulate(plan, cost)
    return found


def priced(graph: Graph, ratio: float = 1.0, alpha: float = 0.0, fixed: float = 0.0) -> Cost:
    """All lanes share a link; the busiest device's takes `ratio` times what it computes. `alpha`, `fixed`: of all."""
    free = {
        lane: ring_wire(max(2, graph.groups.get(lane, 2)), 1.0)
        for lane in ("dp", "replicas", "edp", "tp", "ep", "ep_far", "ep_near", "pp", "islands")
    }
    moved = {
        device: sum(
            op.amount * free[op.lane].kinds[op.kind].beta for op in graph if op.device == device and op.kind.moves
        )
        for device in graph.devices
    }
    computed = sum(op.amount for op in graph if op.lane == COMPUTE and op.microbatch >= 0) / len(graph.devices)
    bandwidth = max(moved.values()) / computed / ratio
    wires = {lane: ring_wire(max(2, graph.groups.get(lane, 2)), bandwidth, alpha) for lane in free}
    return Cost(1.0, {lane: starting(wire, fixed) for lane, wire in wires.items()})


def starting(wire: Wire, fixed: float) -> Wire:
    """The wire, if each Op occupies it for `fixed` seconds more."""
    return replace(wire, kinds={kind: line._replace(fixed=fixed) for kind, line in wire.kinds.items()})


def seconds(graph: Graph, cost: Cost, name: str, **knobs: object) -> float:
    return simulate(policy(name, **knobs).plan(graph, cost), cost).seconds


def gain(step: str, name: str, over: str = "fifo", ratio: float = 1.0, **knobs: object) -> float:
    graph = generate(*STEPS[step])
    cost = priced(graph, ratio)
    return seconds(graph, cost, over) / seconds(graph, cost, name, **knobs)


def gain_of(graph: Graph, cost: Cost, name: str, over: str, **knobs: object) -> float:
    return seconds(graph, cost, over, **knobs) / seconds(graph, cost, name, **knobs)


def demanded(skew: float, ep: int = 4, hidden: int = 256) -> Graph:
    """A step of experts that are asked for by Zipf's law."""
    layout, model = Layout(dp=4, ep=ep, microbatches=2), model_named(f"gpt:hidden=128,ffn={hidden},blocks=3,experts=8")
    return generate(layers_of(model, layout, Form(8, 4, skew=skew)), layout)


def two_levels(graph: Graph, ratio: float) -> Cost:
    """Boxes of two ranks, in which a link of its own is six times as fast as the network."""
    flat = priced(graph, ratio)
    (network,) = {1 / flat.wires["dp"].kinds[Kind.SEND].beta}
    levels = {"dp": ring_wire(2, 6 * network, link="box"), "replicas": ring_wire(2, network)}
    return replace(flat, wires={"dp": flat.wires["dp"]}, level=lambda layout: {**flat.wires, **levels})

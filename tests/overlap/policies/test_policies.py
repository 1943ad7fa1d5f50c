"""Every policy: its plan is one, keeps the step's work, and does to the step what its paper is known for."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes.cut import slice as cut_in_slices
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.fuse import fuse
from syntony.overlap.policies.passes.motifs import FORMS, with_sums
from syntony.overlap.policies.passes.recompute import hidden, keep, within_memory
from syntony.overlap.policies.passes.relayout import split_reduce
from syntony.overlap.policies.passes.tiles import update_by_slice
from syntony.overlap.policies.policy import Decided, Standing
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.policies.table import LEFT_OUT, POLICIES, policy
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.simulation import Timeline, simulate
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.models import Form, layers_of, model_named
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
}


def chains(first: int, every: int) -> list[str]:
    """Every policy before each of two that split backwards; or one in so many of them, from that one on."""
    return [f"{one}+{then}" for one in POLICIES for then in ("need", "ooo_backprop")][first % every :: every]


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


def priced(graph: Graph, ratio: float = 1.0, alpha: float = 0.0) -> Cost:
    """All lanes share a link; the busiest device's takes `ratio` times what it computes."""
    free = {
        lane: ring_wire(max(2, graph.groups.get(lane, 2)), 1.0) for lane in ("dp", "replicas", "edp", "tp", "ep", "pp")
    }
    moved = {
        device: sum(
            op.amount * free[op.lane].kinds[op.kind].beta for op in graph if op.device == device and op.kind.moves
        )
        for device in graph.devices
    }
    computed = sum(op.amount for op in graph if op.lane == COMPUTE and op.microbatch >= 0) / len(graph.devices)
    bandwidth = max(moved.values()) / computed / ratio
    return Cost(1.0, {lane: ring_wire(max(2, graph.groups.get(lane, 2)), bandwidth, alpha) for lane in free})


def seconds(graph: Graph, cost: Cost, name: str, **knobs: object) -> float:
    return simulate(policy(name, **knobs).plan(graph, cost), cost).seconds


def gain(step: str, name: str, over: str = "fifo", ratio: float = 1.0, **knobs: object) -> float:
    graph = generate(*STEPS[step])
    cost = priced(graph, ratio)
    return seconds(graph, cost, over) / seconds(graph, cost, name, **knobs)


@pytest.mark.parametrize("step", STEPS)
def test_every_policy_keeps_the_work(step: str) -> None:
    layers, layout = STEPS[step]
    graph = generate(layers, layout)
    cost = priced(graph, alpha=1e-3)
    found = plans_of(step)
    for name, (plan, timeline) in found.items():
        plan.check()
        assert timeline.seconds >= estimates(plan, cost)[0].seconds * (1 - 1e-9), name
        assert (timeline.end >= timeline.start - 1e-12).all(), name
        assert _computed(plan.graph) == pytest.approx(_computed(graph)), name
        assert sum(op.holds - op.frees for op in plan.graph) == pytest.approx(0, abs=1), name
        # Every byte of every layer's gradients is summed exactly once.
        summed: Counter[int] = Counter()
        for op in plan.graph:
            if op.key.kind == "reduce":
                summed.update({piece.layer: piece.bytes for piece in op.pieces})
        grouped = "dp" in layout.groups or "edp" in layout.groups
        want = {
            i: layer.weights
            for i, layer in enumerate(plan.graph.layers)
            if layer.weights and grouped and not (layer.expert and layout.ep == 4)
        }
        shadows = {plan.graph.shadow(i): layer.shadow for i, layer in enumerate(plan.graph.layers) if layer.shadow}
        want |= {i: shadow.weights for i, shadow in shadows.items()}
        assert summed == want, name
        # What the trainer calls Ops is found in the plan.
        if plan.graph.layout == layout and not plan.simulated:
            recorded = generate(plan.graph.layers, layout)  # with the experts where the policy has them
            own = {op.key for op in recorded if op.kind not in (Kind.ALL_GATHER, Kind.BACKWARD)}
            assert own <= plan.parts.keys(), name
    assert len(found) >= 10


def _computed(graph: Graph) -> dict[int, float]:
    found: Counter[int] = Counter()
    for op in graph:
        if op.lane == COMPUTE and op.microbatch >= 0:
            found[op.layer] += op.amount
    return dict(found)


# The anchor's table: C = 1, twelve layers, F : B = 1 : 2.
TABLE = [
    (0.5, 1.50, 1.04, 1.04),
    (0.8, 1.80, 1.19, 1.07),
    (1.0, 2.00, 1.39, 1.10),
    (1.25, 2.25, 1.64, 1.34),
    (1.5, 2.50, 1.89, 1.58),
    (2.0, 3.00, 2.39, 2.08),
    (4.0, 5.00, 4.39, 4.08),
]


@pytest.mark.parametrize(("ratio", "serial", "fifo", "sliced"), TABLE)
def test_closed_forms_of_data_parallelism(ratio: float, serial: float, fifo: float, sliced: float) -> None:
    graph = generate(dense(), Layout(dp=4))
    cost = priced(graph, ratio)
    forward, backward, layer = 1 / 3, 2 / 3, 1 / 12
    assert seconds(graph, cost, "serial") == pytest.approx(1 + ratio) == pytest.approx(serial, rel=0.02)
    exact = forward + max(backward + ratio * layer, ratio + backward * layer)
    assert seconds(graph, cost, "fifo") == pytest.approx(exact) == pytest.approx(fifo, rel=0.02)
    assert seconds(graph, cost, "p3", slice=WEIGHTS // 4) == pytest.approx(sliced, rel=0.02)
    assert seconds(graph, cost, "need", slice=WEIGHTS // 4) <= seconds(graph, cost, "p3", slice=WEIGHTS // 4)
    # Without a gather before the last sum: backward, then all gathers beside the forward.
    dear = max(backward + ratio / 2 * layer, ratio / 2 + backward * layer)
    dear += max(forward + ratio / 2 * layer, ratio / 2 + forward * layer)
    assert seconds(graph, cost, "dear", buffer=0) == pytest.approx(dear, rel=1e-6)


def test_clipping_takes_half_of_the_gain() -> None:
    assert gain("dp", "need") > 1.24
    assert gain("clip", "need") == pytest.approx(1.0)
    assert 1.08 <= gain("clip", "centauri") < gain("dp", "need")
    assert gain("optimistic", "need") > gain("clip", "need")


def test_named_systems_gain_where_their_papers_do() -> None:
    # Fusion pays for starts, and slices do not.
    graph = generate(dense(24), Layout(dp=4))
    slow = replace(priced(graph), overhead=0.08)
    assert seconds(graph, slow, "pace", slice=1 << 30) < seconds(graph, slow, "p3")
    assert seconds(graph, slow, "ddp", cap=3 * WEIGHTS) < seconds(graph, slow, "fifo")
    # One bucket is no overlap at all.
    assert gain("dp", "ddp", over="serial", cap=1 << 40, first=1 << 40) == pytest.approx(1.0)
    for name in ("p3", "tictac", "bytescheduler"):
        assert gain("dp", name) > 1.15
    assert gain("dp", "gradientflow") <= 1.0 + 1e-9
    assert gain("zero1", "need") > 1.25
    assert gain("tp", "domino") > 1.4
    assert gain("tp", "collective_matmul") > 1.1
    assert gain("tp", "t3") >= gain("tp", "collective_matmul") - 1e-9
    assert gain("ep", "tutel", "gshard") > 1.15
    assert gain("ep", "tutel") >= gain("ep", "tutel", degree=2)
    assert gain("dp x ep", "flowmoe", "tutel") > 1.13
    assert gain("dp x ep", "lina") > 1.05
    assert gain("pp", "zero_bubble", memory="2p") > 1.15
    assert gain("pp", "breadth_first") > 1.1
    assert gain("dp", "ooo_backprop") > 1.05
    assert gain("recompute", "lynx", ahead=8) > 1.02


def test_pace_fuses_for_the_step_in_which_it_preempts() -> None:
    small = [replace(layer, weights=WEIGHTS // (1 + 7 * (i % 3 > 0))) for i, layer in enumerate(dense(12))]
    graph = generate(small, Layout(dp=4))
    better = 0
    for alpha in (0.0, 0.003, 0.01, 0.03):
        base = priced(graph)
        wire = base.wires["dp"]
        kinds = {kind: line._replace(fixed=alpha) for kind, line in wire.kinds.items()}
        cost = replace(base, wires={**base.wires, "dp": replace(wire, kinds=kinds)})

        def preempted(fused: Graph, cost: Cost = cost) -> float:
            cut = cut_in_slices(defer(fused), 1 << 20)
            return simulate(Decided(cut, orders.need).plan("", {}, cost), cost).seconds

        apart = preempted(graph)
        found = seconds(graph, cost, "pace")
        plan = policy("pace").plan(graph, cost)
        plan.check()
        assert found <= min(apart, preempted(fuse(graph, 1 << 40))) * (1 + 1e-9)
        better += found < apart * (1 - 1e-3)
    assert better  # starts that cost make it fuse


def test_schemoe_has_the_best_of_all_orders_of_a_layer() -> None:
    (one, *_) = experts()
    graph = generate([one], Layout(dp=4, ep=4))
    for ratio, alpha in ((0.5, 0.0), (1.0, 0.0), (1.0, 0.01), (2.0, 0.0)):
        cost = priced(graph, ratio, alpha)
        plan = policy("schemoe", degree=2).plan(graph, cost)
        best = simulate(plan, cost).seconds
        moved, computed = plan.orders[0, "ep"], plan.orders[0, COMPUTE]
        tried = 0
        for lane in itertools.permutations(moved):
            if any(lane.index(dep) > lane.index(key) for key in lane for dep in plan.graph[key].deps if dep in lane):
                continue
            if [key for key in lane if key.direction == "f"] != list(lane[:4]):
                continue
            orders = {**plan.orders, (0, "ep"): lane, (0, COMPUTE): computed}
            with suppress(UserError):  # lanes that wait for each other
                tried += 1
                assert simulate(replace(plan, orders=orders), cost).seconds >= best * (1 - 1e-9)
        assert tried > 30


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_updates_by_slices_hide_the_optimizer(ratio: float) -> None:
    graph = split_reduce(generate(dense(), Layout(dp=4)))
    cost = replace(priced(graph, ratio), memory=0.2 / WEIGHTS)
    whole = cut_in_slices(graph, WEIGHTS // 4)
    fused = update_by_slice(whole)
    fused.check()
    assert sum(op.kind is Kind.OPTIMIZE for op in fused) == 4 * 12
    times = [simulate(Decided(one).plan("", {}, cost), cost).seconds for one in (whole, fused)]
    assert times[1] < times[0] * 0.995
    plan = policy("coconet", slice=WEIGHTS // 4).plan(graph, cost)
    assert simulate(plan, cost).seconds <= min(times) * (1 + 1e-9)
    for last in (op for op in fused if op.key.kind == "gather"):
        assert [dep.part for dep in last.deps] == [last.key.part]  # a slice waits for itself


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.sweep)], ids=["some", "all"])
@pytest.mark.parametrize("step", STEPS)
def test_backwards_are_split_whatever_came_before(step: str, every: int) -> None:
    graph = generate(*STEPS[step])
    cost = priced(graph, 0.5)
    for chain in chains([*STEPS].index(step), every):
        with suppress(UserError):  # some do not fit together, and say so
            plan = planned(chain_of(chain), graph, cost)
            plan.graph.check()
            simulate(plan, cost)


@pytest.mark.parametrize(("microbatches", "ratio"), [(1, 0.5), (2, 0.2)])
def test_need_computes_the_first_gradients_late_where_that_hides_the_last_sums(microbatches: int, ratio: float) -> None:
    graph = generate(dense(), Layout(dp=4, microbatches=microbatches))

    def late(ratio: float) -> list[str]:
        plan = policy("need").plan(graph, priced(graph, ratio))
        plan.graph.check()
        return [str(key) for key in plan.orders[0, COMPUTE] if key.kind == Kind.BACKWARD_WEIGHT]

    # The very first layer's sum leaves first. Of the microbatches before the last nothing is late.
    assert late(ratio) == [f"bwd_w.{layer}.{microbatches - 1}" for layer in range(4)]
    assert late(2.0) == []  # the wires are never idle
    cost = priced(graph, ratio)
    assert seconds(graph, cost, "need") == pytest.approx(microbatches)  # all sums are hidden
    assert seconds(graph, cost, "p3", slice=1 << 20) > 1.01 * microbatches


def test_more_microbatches_side_by_side_hide_more() -> None:
    layers, layout = STEPS["ep"]
    graph = generate(layers, replace(layout, microbatches=4))
    cost = priced(graph)

    def seconds(name: str, **knobs: object) -> float:
        plan = policy(name, **knobs).plan(graph, cost)
        plan.graph.check()
        return simulate(plan, cost).seconds

    assert seconds("flowmoe", degree=4) < seconds("flowmoe", degree=2) < seconds("flowmoe", degree=1)
    assert seconds("dualpipe", batches=2) < seconds("dualpipe", batches=1)
    with pytest.raises(UserError, match="multiple of 3"):
        seconds("dualpipe", batches=3)


@pytest.mark.parametrize("ratio", [0.5, pytest.param(1.0, marks=pytest.mark.sweep), 1.5])
def test_interleave_takes_whatever_is_ready(ratio: float) -> None:
    graph = generate(tensor(), Layout(tp=4, microbatches=4))
    cost = priced(graph, ratio)
    plan = policy("interleave").plan(graph, cost)
    plan.graph.check()
    assert Counter(op.sources for op in policy("interleave", pieces=1).plan(graph, cost).graph) == Counter(
        op.sources for op in graph
    )
    others = [("dualpipe", {"batches": 2}), ("domino", {"batches": 4}), ("collective_matmul", {"pieces": 4})]
    assert simulate(plan, cost).seconds <= min(seconds(graph, cost, name, **knobs) for name, knobs in others)
    assert simulate(plan, cost).seconds < 1.12 * 4 * max(1.0, ratio)
    computed = plan.orders[0, COMPUTE]
    assert plan.windows == {"tp": 1}  # nothing is won by having more in flight where starts cost nothing
    slow = replace(cost, wires={lane: ring_wire(4, 1e3 * MOVED, 0.5) for lane in cost.wires})
    assert policy("interleave").plan(graph, slow).windows == {}
    first = [min(i for i, name in enumerate(computed) if plan.graph[name].microbatch == m) for m in range(4)]
    assert first == sorted(first)  # microbatches begin in turn
    assert first[3] < max(i for i, name in enumerate(computed) if plan.graph[name].microbatch == 0)


def test_memory_changes_with_the_policy() -> None:
    graph = generate([replace(layer, activations=32 * MOVED) for layer in dense(8)], Layout(pp=4, dp=2, microbatches=8))
    cost = priced(graph, 0.1)

    def peak(name: str, **knobs: object) -> float:
        return max(simulate(policy(name, **knobs).plan(graph, cost), cost).peak.values())

    assert peak("zero_bubble", memory="1p") <= peak("fifo") * 1.02  # messages beside them
    assert peak("fifo") * 1.3 < peak("zero_bubble", memory="2p")
    assert peak("fifo") * 1.2 < peak("breadth_first")
    large = [replace(layer, activations=8 * MOVED) for layer in tensor()]
    layout = STEPS["recompute"][1]
    kept, again = (generate(large, replace(layout, recompute=recompute)) for recompute in (False, True))
    assert seconds(kept, cost, "fifo") < seconds(again, cost, "fifo")
    kept_bytes, bytes_again = (simulate(policy("fifo").plan(graph, cost), cost).peak[0] for graph in (kept, again))
    assert bytes_again < kept_bytes * 0.8


def two_levels(graph: Graph, ratio: float) -> Cost:
    """Boxes of two ranks, in which a link of its own is six times as fast as the network."""
    flat = priced(graph, ratio)
    (network,) = {1 / flat.wires["dp"].kinds[Kind.SEND].beta}
    levels = {"dp": ring_wire(2, 6 * network, link="box"), "replicas": ring_wire(2, network)}
    return replace(flat, wires={"dp": flat.wires["dp"]}, level=lambda layout: {**flat.wires, **levels})


def test_sums_are_chosen_layer_by_layer() -> None:
    layers = [replace(layer, weights=WEIGHTS // (1 + 3 * (i % 3))) for i, layer in enumerate(dense(9))]
    graph = generate(layers, Layout(dp=4))
    cost = two_levels(graph, 2.5)
    for name, rule in (("syndicate", orders.critical), ("centauri", orders.need)):
        every = [Decided(defer(with_sums(graph, (form,) * 9, 2)), rule) for form in FORMS]
        alike = [simulate(one.plan("", {}, cost), cost).seconds for one in every]
        plan = policy(name, slice=WEIGHTS // 4).plan(graph, cost)
        plan.check()
        assert plan.hash == policy(name, slice=WEIGHTS // 4).plan(graph, cost).hash
        assert Plan.from_text(plan.text) == plan
        assert simulate(plan, cost).seconds <= min(alike) * (1 + 1e-9)
    still = simulate(policy("syndicate", moves=0).plan(graph, cost), cost).seconds
    walk = policy("syndicate", moves=200).plan(graph, cost)
    assert simulate(walk, cost).seconds < still * (1 - 1e-6)


def test_lynx_computes_again_what_costs_least_within_its_memory() -> None:
    large = [replace(layer, activations=8 * MOVED, inputs=MOVED) for layer in tensor(3)]
    graph = generate(large, Layout(tp=4, microbatches=2, recompute=True))
    cost = priced(graph, 0.1)
    segments = sorted({(op.layer, op.segment) for op in graph if op.kind is Kind.RECOMPUTE})
    every = [
        simulate(hidden(keep(graph, kept), 4).plan("", {}, cost), cost)
        for number in range(len(segments) + 1)
        for kept in itertools.combinations(segments, number)
    ]
    low, high = min(one.peak[0] for one in every), max(one.peak[0] for one in every)
    before = [10.0, 10.0]
    for share in (0.1, 0.3, 0.5, 0.7, 1.0):
        memory = int(low + share * (high - low)) + 1
        best = min(one.seconds for one in every if one.peak[0] <= memory)
        for alike in (1, 0):
            plan = policy("lynx", memory=memory, alike=alike).plan(graph, cost)
            plan.check()
            found = simulate(plan, cost)
            assert found.peak[0] <= memory
            assert found.seconds <= before[alike] * (1 + 1e-9)
            before[alike] = found.seconds
        assert before[0] <= best * 1.05  # of all choices; its waits are those of the step that keeps all
        assert before[0] <= before[1] * (1 + 1e-9)
    with pytest.raises(UserError, match=f"memory is {MOVED}; with all activations computed again, device 0 needs"):
        policy("lynx", memory=MOVED).plan(graph, cost)


def test_lynx_moves_layers_to_stages_that_compute_less_again() -> None:
    deep = [replace(layer, activations=8 * MOVED, inputs=MOVED) for layer in tensor(9)]
    graph = generate(deep, Layout(tp=2, pp=4, microbatches=8, recompute=True))
    cost = priced(graph, 0.3)
    least = max(simulate(policy("fifo").plan(graph, cost), cost).peak.values())
    plan = policy("lynx", memory=int(1.5 * least)).plan(graph, cost)
    plan.check()
    found = simulate(plan, cost)
    assert max(found.peak.values()) <= 1.5 * least
    still = simulate(within_memory(graph, cost, int(1.5 * least), 4, alike=True).plan("", {}, cost), cost)
    assert found.seconds < still.seconds * 0.99


def test_janus_moves_experts_where_they_are_small() -> None:
    graph = generate(experts(weights=MOVED // 64), Layout(dp=4, ep=4, microbatches=2))
    cost = priced(graph)
    plan = policy("janus").plan(graph, cost)
    assert not plan.simulated
    assert {op.kind for op in plan.graph if op.lane == "ep"} == {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}
    moved = Counter(op.layer for op in plan.graph if op.lane == "ep")
    assert set(moved.values()) == {2}  # once there and once back, whatever the number of microbatches
    assert simulate(plan, cost).seconds < seconds(graph, cost, "gshard") / 1.5
    large = generate(experts(), Layout(dp=4, ep=4, microbatches=2))
    assert any(op.kind is Kind.ALL_TO_ALL for op in policy("janus").plan(large, priced(large)).graph)


def test_janus_chooses_for_each_layer() -> None:
    mixed = [
        replace(layer, weights=weights, moved=moving(replace(layer, weights=weights), 4))
        for layer, weights in zip(experts(), itertools.cycle((MOVED // 64, 16 * MOVED)), strict=False)
    ]
    graph = generate(mixed, Layout(dp=4, ep=4, microbatches=2))
    plan = policy("janus").plan(graph, priced(graph))
    assert {op.layer % 2 for op in plan.graph if op.lane == "ep" and op.pieces} == {0}  # the small ones come
    assert {op.layer % 2 for op in plan.graph if op.kind is Kind.ALL_TO_ALL} == {1}


def demanded(skew: float, ep: int = 4, hidden: int = 256) -> Graph:
    """A step of experts that are asked for by Zipf's law."""
    layout, model = Layout(dp=4, ep=ep, microbatches=2), model_named(f"gpt:hidden=128,ffn={hidden},blocks=3,experts=8")
    return generate(layers_of(model, layout, Form(8, 4, skew=skew)), layout)


def test_fastermoe_has_the_experts_in_demand_as_guests() -> None:
    gains = []
    for skew in (0.0, 0.5, 1.0, 2.0):
        graph = demanded(skew)
        cost = priced(demanded(0.0))
        plan = policy("fastermoe", degree=1).plan(graph, cost)
        layers = [layer for layer in plan.graph.layers if layer.visits is not None and layer.demand is not None]
        assert len(layers) == 3
        for layer in layers:
            assert layer.visits is not None
            assert layer.demand is not None
            guests = layer.visits.guests(layer.demand.counts)
            assert bool(len(guests)) == bool(skew)
            if skew:  # another expert in each block
                assert layer.demand.first in guests
        gains.append(seconds(graph, cost, "gshard") / simulate(plan, cost).seconds)
    assert gains == sorted(gains)
    assert gains[0] == pytest.approx(1.0, rel=0.01)
    assert gains[-1] > 2
    large = demanded(0.5, hidden=1 << 16)  # they weigh more than all rows
    found = [layer for layer in policy("fastermoe").plan(large, priced(large)).graph.layers if layer.visits]
    assert not any(len(one.visits.guests(one.demand.counts)) for one in found if one.visits and one.demand)
    told = policy("fastermoe", hot=4).plan(large, priced(large))
    assert {layer.hot for layer in told.graph.layers if layer.expert} == {4}


def test_tutel_switches_between_rows_and_experts() -> None:
    graph = demanded(2.0, hidden=32)
    cost = priced(demanded(0.0))
    plan = policy("tutel").plan(graph, cost)
    found = [layer for layer in plan.graph.layers if layer.visits and layer.demand]
    assert len(found) == 3
    assert all(len(one.visits.guests(one.demand.counts)) == 8 for one in found if one.visits and one.demand)
    assert simulate(plan, cost).seconds < seconds(graph, cost, "gshard")
    large = demanded(0.0, hidden=1 << 14)
    assert not any(layer.visits for layer in policy("tutel").plan(large, priced(large)).graph.layers)


def test_microbatches_side_by_side_share_experts_that_have_come() -> None:
    graph = generate(experts(weights=MOVED // 64), Layout(dp=4, ep=4, microbatches=4))
    cost = priced(graph)
    plan = planned(chain_of("janus+dualpipe:batches=2"), graph, cost)
    assert simulate(plan, cost).seconds < seconds(graph, cost, "dualpipe", batches=2)
    assert sum(op.kind is Kind.ALL_GATHER for op in plan.graph) == 8
    assert not any(op.kind is Kind.ALL_TO_ALL for op in plan.graph)
    sharded = generate(dense(), Layout(dp=4, zero=3, microbatches=4))
    assert seconds(sharded, priced(sharded), "dualpipe", batches=2) < seconds(sharded, priced(sharded), "fifo")


@pytest.mark.parametrize(
    ("name", "step", "knobs", "message"),
    [
        ("bytescheduller", "dp", {}, "did you mean bytescheduler"),
        ("bytescheduler", "dp", {"slise": 1}, "has no knob 'slise' .did you mean slice"),
        ("bytescheduler", "dp", {"slice": "big"}, "slice is 'big'; it must be a number"),
        ("bytescheduler", "dp", {"slice": -1}, "slice is -1; it must not be negative"),
        ("bytescheduler", "dp", {"slice": 0}, "slice is 0"),
        ("zero_bubble", "dp", {}, "orders a pipeline, and this step has pp=1"),
        ("zero_bubble", "pp", {"memory": "3p"}, "memory is '3p'; it must be 1p, 2p or v"),
        ("domino", "dp", {}, "nothing moves on tp"),
        ("domino", "tp", {"batches": 3}, "microbatches=2; it must be a multiple of 3"),
        ("tutel", "tp", {}, "nothing moves on ep"),
        ("interleave", "recompute", {}, "orders steps with pp=1 and recompute=false"),
        ("lynx", "tp", {}, "set recompute=true"),
        ("fastermoe", "dp x ep", {"hot": 3}, "of layer layer0 it can be 2, 4: of each rank of ep=2"),
        ("syndicate", "dp", {"local": 3}, "local is 3; it must divide the 4 ranks"),
    ],
)
def test_refusals(name: str, step: str, knobs: dict[str, object], message: str) -> None:
    graph = generate(*STEPS[step])
    with pytest.raises(UserError, match=message):
        policy(name, **knobs).plan(graph, priced(graph))


def test_entries_are_short_and_name_their_source() -> None:
    import inspect

    for entry in POLICIES.values():
        function = inspect.getsource(entry.decide).partition("\ndef ")[2]
        assert len(function.splitlines()) <= 14, entry.name
        assert entry.about, entry.name
        assert entry.paper, entry.name
        assert all(knob.default in knob.grid or not knob.grid for knob in entry.knobs.values()), entry.name


def test_knobs_are_read_as_text() -> None:
    assert policy("bytescheduler", slice="1M", credit="256K").values == {"slice": 1 << 20, "credit": 1 << 18}


def test_plans_are_the_same_everywhere() -> None:
    graph = generate(*STEPS["dp x ep"])
    cost = priced(graph)
    for name in ("need", "lina", "flowmoe", "centauri"):
        plan = policy(name).plan(graph, cost)
        assert plan.hash == policy(name).plan(graph, cost).hash
        assert Plan.from_text(plan.text) == plan


def test_rows_say_how_whole_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What is listed is what the registry has; a row that can only be simulated makes plans that say so, others run."""
    assert main(["overlap", "list"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    listed = dict(reversed(found) for found in re.findall(r"^([WSP-]) (\w+) ", text, re.MULTILINE))
    assert listed == {name: one.standing for name, one in POLICIES.items()} | dict.fromkeys(LEFT_OUT, "-")
    for name, one in POLICIES.items():
        assert (one.standing is Standing.PARTIAL) == bool(one.missing), name
        assert "left out" not in one.about, name
    for step in STEPS:
        for name, (plan, _) in plans_of(step).items():
            assert bool(plan.simulated) == (POLICIES[name].standing is Standing.SIMULATED), (name, step)
    for name, reason in LEFT_OUT.items():
        with pytest.raises(UserError, match=re.escape(reason)):
            policy(name)


def test_no_two_names_stand_for_the_same_plans() -> None:
    """Of every two published systems that apply to the same steps, one has another plan, or cost, for one of them. But
    for gshard, which says where tokens go, not when: its plan is the plain one, as poseidon's is."""
    plans: dict[str, dict[str, object]] = {}
    found = {step: plans_of(step) for step in STEPS} | {"asked unevenly": plans_for(demanded(1.0))}
    for step, those in found.items():
        for name, (plan, timeline) in those.items():
            if not POLICIES[name].paper.startswith("none"):
                plans.setdefault(name, {})[step] = plan.orders, plan.windows, plan.priorities, timeline.seconds
    for one, other in itertools.combinations(plans, 2):
        both = plans[one].keys() & plans[other].keys()
        alike = both and all(plans[one][step] == plans[other][step] for step in both)
        assert bool(alike) == ((one, other) == ("poseidon", "gshard")), (one, other)


def test_hardware_that_starts_transfers_pays_one_launch() -> None:
    graph = generate(*STEPS["tp"])
    cost = replace(priced(graph, alpha=1e-2), overhead=1e-3)
    assert gain_of(graph, cost, "t3", "collective_matmul", pieces=8) > 1.01
    assert gain_of(graph, replace(priced(graph), overhead=0.0), "t3", "collective_matmul", pieces=8) == pytest.approx(1)
    plan = policy("t3").plan(graph, cost)
    assert Plan.from_text(plan.text).graph.triggered


def gain_of(graph: Graph, cost: Cost, name: str, over: str, **knobs: object) -> float:
    return seconds(graph, cost, over, **knobs) / seconds(graph, cost, name, **knobs)

"""Estimates hold and have closed forms; reasons are the ones that were built in; savings come true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from syntony.overlap.policies.table import policy
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.explain import Making, Reason, describe, explain, report, without, without_norms
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost, Linear, Wire, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.plan import Plan
from tests.overlap.models import dense
from tests.overlap.plans import COST, LAYOUTS, in_order, key, step
from tests.sampled import examples


@examples(60)
@given(LAYOUTS)
def test_no_plan_beats_its_estimates(layout: Layout) -> None:
    plan = in_order(step(layout))
    timeline = simulate(plan, COST)
    for estimate in estimates(plan, COST):
        assert estimate.seconds <= timeline.seconds * (1 + 1e-6), estimate
        assert estimate.ops


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (4, 4)])
def test_a_pipelines_estimate_is_its_bubble(stages: int, microbatches: int) -> None:
    layout = Layout(pp=stages, microbatches=microbatches)
    plan = in_order(generate(dense(stages, flops=1.0), layout))
    cost = Cost(wires={"pp": Wire({Kind.SEND: Linear(0, 0), Kind.RECV: Linear(0, 0)})})
    best = estimates(plan, cost)[0]
    assert best.kind == "pipeline"
    assert best.seconds == pytest.approx((microbatches + stages - 1) * 3.0)
    assert simulate(plan, cost).seconds == pytest.approx(best.seconds)


def test_data_parallel_estimates() -> None:
    graph = generate(dense(8), Layout(dp=2))
    slow, fast = (Cost(wires={"dp": Wire({Kind.ALL_REDUCE: Linear(0, beta)})}) for beta in (4e-3, 1e-4))
    assert [estimates(in_order(graph), cost)[0].kind for cost in (slow, fast)] == ["link", "cycle"]
    assert estimates(in_order(graph), slow)[0].seconds == pytest.approx(8 * 4.0)
    # Computing, and then the first layer's sum, for which nothing is left to compute.
    assert estimates(in_order(graph), fast)[0].seconds == pytest.approx(24 + 0.1)


def _plan(*ops: Op, windows: dict[str, int] | None = None) -> Plan:
    return replace(in_order(Graph(ops)), windows=windows or {})


COMPUTE = {"kind": Kind.FORWARD, "device": 0, "lane": "compute"}
MOVE = {"kind": Kind.ALL_REDUCE, "device": 0, "lane": "dp"}
ONE = Cost(
    wires={"dp": Wire({Kind.ALL_REDUCE: Linear(0, 1)}, "net"), "tp": Wire({Kind.ALL_REDUCE: Linear(0, 1)}, "net")}
)


def test_reasons() -> None:
    late = _plan(
        Op(key("fwd.0.0"), amount=1, **COMPUTE), Op(key("reduce.0"), amount=1, deps=(key("fwd.0.0"),), **MOVE),
        Op(key("opt.0"), Kind.OPTIMIZE, 0, "compute", 1, (key("reduce.0"),)),
    )  # fmt: skip
    (one,) = explain(simulate(late, ONE)).ops
    assert (one.reason, one.blame, one.needed) == (Reason.NOT_READY, key("fwd.0.0"), key("opt.0"))
    assert one.saving == pytest.approx(1.0)

    busy = _plan(
        Op(key("fwd.0.0"), amount=1, lagged=(key("other.0"),), **COMPUTE),
        Op(key("other.0"), Kind.ALL_REDUCE, 0, "tp", 5, (key("fwd.0.0"),)),
        Op(key("fwd.1.0"), Kind.FORWARD, 0, "compute", 1, (key("fwd.0.0"),)),
        Op(key("reduce.0"), amount=2, deps=(key("fwd.1.0"),), **MOVE),
    )
    found = {one.op.key: one for one in explain(simulate(busy, ONE)).ops}
    assert (found[key("reduce.0")].reason, found[key("reduce.0")].blame) == (Reason.BUSY, key("other.0"))

    clipped = explain(simulate(in_order(generate(dense(4), Layout(dp=2, zero=1, clip=Clip.EXACT))), replace(
        COST, flops=1.0, wires={"dp": ring_wire(2, 500)}
    )))  # fmt: skip
    assert any(group.reason is Reason.CLIPPING and group.example.blame == key("norm.0") for group in clipped.groups)


def test_acting_on_what_would_help_saves_what_was_said() -> None:
    layers, layout = dense(6), Layout(dp=2, zero=1, clip=Clip.EXACT)
    cost = Cost(wires={"dp": ring_wire(2, 500.0, 1e-3)}, memory=1e-4)
    before = simulate(in_order(generate(layers, layout)), cost)
    said = {change.what: change.saving for change in explain(before).changes}
    acts = {
        "updates did not wait for clipping": (replace(layout, clip=Clip.OFF), cost),
        "link 'network' were twice as fast": (layout, replace(cost, wires={"dp": ring_wire(2, 1000.0, 1e-3)})),
        "messages had no latency": (layout, replace(cost, wires={"dp": ring_wire(2, 500.0)})),
    }
    for what, (acted, price) in acts.items():
        after = simulate(in_order(generate(layers, acted)), price)
        saved = before.seconds - after.seconds
        assert said.get(what, 0.0) == pytest.approx(saved, rel=0.1, abs=2e-3 * before.seconds), what
    assert len(said) >= 3


def test_what_clipping_costs_is_what_the_policy_would_do_without_it() -> None:
    """Orders that are made for clipping are not those that one would have without it."""
    layers, cost = dense(6), Cost(wires={"dp": ring_wire(2, 120.0, 1e-3)}, memory=1e-4)
    need = policy("need", slice=64)
    clipped, free = (need.plan(generate(layers, Layout(dp=2, clip=clip)), cost) for clip in (Clip.EXACT, Clip.OFF))
    step = generate(layers, Layout(dp=2, clip=Clip.EXACT))
    assert need.plan(without_norms(step), cost).text == free.text
    before, what = simulate(clipped, cost), "updates did not wait for clipping"
    told = {change.what: change.saving for change in explain(before, made=Making(step, need.plan)).changes}[what]
    kept = {change.what: change.saving for change in explain(before).changes}[what]
    assert told == pytest.approx(before.seconds - simulate(free, cost).seconds)
    assert kept < told


def test_faster_wires_get_the_plan_that_the_policy_makes_for_them() -> None:
    """With slow wires few updates go over the cut between steps, with fast ones all do."""
    step, need = generate(dense(12), Layout(dp=2, zero=1)), policy("need", slice=64)
    cost, faster = (Cost(wires={"dp": ring_wire(2, rate)}, memory=1e-4) for rate in (20.0, 40.0))
    plan = need.plan(step, cost)
    before, what = simulate(plan, cost), "link 'network' were twice as fast"
    after = simulate(need.plan(step, faster), faster)
    told = {change.what: change.saving for change in explain(before, made=Making(step, need.plan)).changes}[what]
    assert told == pytest.approx(before.seconds - after.seconds)
    assert told > {change.what: change.saving for change in explain(before).changes}[what]


def test_a_policy_may_make_replicas_of_its_own() -> None:
    step, syndicate = generate(dense(6), Layout(dp=4)), policy("syndicate")
    cost = Cost(wires={"dp": ring_wire(4, 500.0)})
    before = simulate(syndicate.plan(step, cost), cost)
    said = {change.what: change.saving for change in explain(before, made=Making(step, syndicate.plan)).changes}
    assert said["link 'network' were twice as fast"] > 0


@examples(10)
@given(LAYOUTS)
def test_explanations_can_be_told(layout: Layout) -> None:
    timeline = simulate(in_order(step(layout)), COST)
    found = explain(timeline, top=3)
    assert 0 < found.efficiency <= 1 + 1e-6
    text = "\n".join(describe(found))
    assert "did it overlap?" in text
    assert "estimate" in text
    assert report(found)["step"] == timeline.seconds
    gone = simulate(timeline.plan, without(COST, [op.key for op in timeline.plan.graph if op.kind.moves]))
    assert all(value == 0 for value in gone.exposed.values())

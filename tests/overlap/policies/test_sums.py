"""Sums of gradients: fused, by slices, each layer's in a form of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes.backward import split_backward
from syntony.overlap.policies.passes.cut import slice as cut_in_slices
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.factors import factored, with_factors
from syntony.overlap.policies.passes.fuse import fuse
from syntony.overlap.policies.passes.motifs import FORMS, with_sums
from syntony.overlap.policies.passes.relayout import split_reduce
from syntony.overlap.policies.passes.tiles import update_by_slice
from syntony.overlap.policies.policy import Decided
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan
from tests.overlap.policies.steps import WEIGHTS, dense, priced, seconds, two_levels


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


def narrow(tokens: int, ranks: int = 4, blocks: int = 3) -> Graph:
    """A transformer that sees few tokens."""
    layout, model = Layout(dp=ranks), model_named(f"gpt:hidden=256,blocks={blocks},seq={tokens},vocab=512")
    return generate(layers_of(model, layout, Form(1, 4)), layout)


def test_factors_are_sent_where_they_are_lighter() -> None:
    for tokens, few in ((8, True), (2048, False)):
        graph = narrow(tokens)
        cost = priced(graph, 4.0)
        plans = {send: policy("poseidon", send=send).plan(graph, cost) for send in ("best", "sums", "factors")}
        took = {send: simulate(plan, cost).seconds for send, plan in plans.items()}
        assert took["best"] == min(took.values())
        assert (took["factors"] < took["sums"]) == few
        assert took["sums"] == seconds(graph, cost, "fifo")
        rebuilt = {op.layer for op in plans["factors"].graph if op.kind is Kind.REBUILD}
        assert rebuilt == {1, 2, 3, 4}  # an embedding's gradient is no product
        assert {op.layer for op in plans["best"].graph if op.kind is Kind.REBUILD} == (rebuilt if few else set())
        plans["factors"].check()
        assert Plan.from_text(plans["factors"].text) == plans["factors"]


def test_factors_are_what_the_products_are_of() -> None:
    """Bytes: x and dy of every matrix, of all ranks. Operations: those of all ranks' products, on each of them."""
    tokens, ranks, hidden = 8, 4, 256
    graph = narrow(tokens, ranks, blocks=1)
    plan = policy("poseidon", send="factors").plan(graph, priced(graph))
    (gather,) = [op for op in plan.graph if op.key.kind == "factors" and op.layer == 1]
    widths = [(hidden, 3 * hidden), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden)]
    gains = 2 * 4 * hidden
    assert gather.amount == ranks * (tokens * 4 * sum(map(sum, widths)) + gains)
    (rebuild,) = [op for op in plan.graph if op.kind is Kind.REBUILD and op.layer == 1]
    assert rebuild.amount == pytest.approx(ranks * sum(2 * tokens * m * n for m, n in widths))
    computed = sum(op.amount for op in plan.graph if op.kind is Kind.BACKWARD and op.layer == 1)
    assert computed + rebuild.amount / ranks == sum(
        op.amount for op in graph if op.kind is Kind.BACKWARD and op.layer == 1
    )


def test_late_gradients_are_not_made_twice() -> None:
    graph = with_factors(narrow(8), factored(narrow(8)))
    split = split_backward(graph)
    assert {op.amount for op in split if op.kind is Kind.BACKWARD_WEIGHT and op.layer > 0} == {0.0}


@pytest.mark.parametrize("layout", [Layout(dp=4, zero=1), Layout(tp=2), Layout(pp=4, dp=2, schedule="chimera")])
def test_factors_need_whole_sums(layout: Layout) -> None:
    model = model_named("gpt:hidden=256,blocks=6,seq=8,vocab=512")
    graph = generate(layers_of(model, layout), replace(layout, microbatches=4))
    with pytest.raises(UserError, match="dp must be 2 or more, and zero 0"):
        policy("poseidon", send="factors").plan(graph, priced(graph))
    policy("poseidon").plan(graph, priced(graph)).check()

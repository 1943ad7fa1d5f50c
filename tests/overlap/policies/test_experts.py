"""Experts: tokens that travel, or experts that do."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from statistics import fmean

import pytest

from syntony.base.command import UserError
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from tests.overlap.models import moving
from tests.overlap.policies.steps import MOVED, demanded, dense, experts, priced, seconds


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


def test_janus_moves_experts_where_they_are_small() -> None:
    graph = generate(experts(weights=MOVED // 64), Layout(dp=4, ep=4, microbatches=2))
    cost = priced(graph)
    plan = policy("janus").plan(graph, cost)
    assert not plan.simulated
    assert {op.kind for op in plan.graph if op.lane == "ep"} == {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}
    moved = Counter(op.layer for op in plan.graph if op.lane == "ep")
    groups = max(moved.values()) // 2  # once there and once back, in so many, whatever the number of microbatches
    assert set(moved.values()) == {2 * groups}
    assert simulate(plan, cost).seconds < seconds(graph, cost, "gshard") / 1.5
    large = generate(experts(), Layout(dp=4, ep=4, microbatches=2))
    assert any(op.kind is Kind.ALL_TO_ALL for op in policy("janus").plan(large, priced(large)).graph)


def test_janus_computes_with_an_expert_while_others_come() -> None:
    model, layout = model_named("gpt:hidden=128,ffn=512,blocks=3,experts=8"), Layout(dp=4, ep=4, microbatches=2)
    graph = generate(layers_of(model, layout, Form(8, 4)), layout)
    cost = priced(graph, 0.5)
    took = [seconds(graph, cost, "janus", groups=groups) for groups in (1, 2, 8)]
    assert took == sorted(took, reverse=True)
    assert took[2] < 0.98 * took[0]
    assert seconds(graph, cost, "janus") == pytest.approx(min(took))
    plan = policy("janus", groups=8).plan(graph, cost).graph
    feeds = [op for op in plan if op.key.part and op.lane == COMPUTE]
    assert {len(op.of) for op in feeds} == {1}
    for op in feeds:
        waits = [key for key in op.deps if key.kind == "gather"]
        assert [key.part for key in waits] == [op.key.part]
    still = [op for op in plan if op.lane == COMPUTE and op.layer in {op.layer for op in feeds} and not op.amount]
    assert still
    assert not any(key.kind == "gather" and plan[key].lane == "ep" for op in still for key in op.deps)
    sizes = {op.amount for op in plan if op.kind is Kind.ALL_GATHER and op.lane == "ep"}
    assert sizes == {2 * 512 * 128 * 4}  # one expert each


def test_janus_chooses_for_each_layer() -> None:
    mixed = [
        replace(layer, weights=weights, moved=moving(replace(layer, weights=weights), 4))
        for layer, weights in zip(experts(), itertools.cycle((MOVED // 64, 16 * MOVED)), strict=False)
    ]
    graph = generate(mixed, Layout(dp=4, ep=4, microbatches=2))
    plan = policy("janus").plan(graph, priced(graph))
    assert {op.layer % 2 for op in plan.graph if op.lane == "ep" and op.pieces} == {0}  # the small ones come
    assert {op.layer % 2 for op in plan.graph if op.kind is Kind.ALL_TO_ALL} == {1}


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


def test_pipemoe_cuts_by_all_that_a_chunk_takes_whatever_its_size() -> None:
    graph = generate(experts(), Layout(dp=4, ep=4))
    plain = priced(graph)
    taken, _ = plain.seconds(graph)
    hidden = min(
        fmean(taken[row] for row, op in enumerate(graph) if op.kind is Kind.ALL_TO_ALL),
        fmean(taken[row] for row, op in enumerate(graph) if op.kind is Kind.FORWARD and graph.layers[op.layer].expert),
    )
    alpha = hidden / 12 / 3  # ring_wire has an alpha for each of three messages
    for cost, degree in (
        (plain, 8),
        (priced(graph, alpha=alpha), 3),  # sqrt 12
        (replace(plain, launch=hidden / 12), 3),
        (replace(plain, start=hidden / 12), 3),
        (replace(priced(graph, alpha=alpha), launch=hidden / 12, start=hidden / 12), 2),  # sqrt 4
        (priced(graph, fixed=hidden / 4), 2),
        (priced(graph, fixed=hidden), 1),
    ):
        plan = policy("pipemoe").plan(graph, cost)
        assert max(len(parts) for parts in plan.parts.values()) == degree, cost
    eighths = [
        replace(layer, transfers=tuple(replace(move, most=8) for move in layer.transfers)) for layer in graph.layers
    ]
    plan = policy("pipemoe").plan(generate(eighths, Layout(dp=4, ep=4)), replace(plain, launch=hidden / 50))
    assert max(len(parts) for parts in plan.parts.values()) == 8  # not sqrt 50, of which 8 rows have no part


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


def test_no_expert_travels_beside_parts_of_rows() -> None:
    layout = Layout(dp=2, ep=2, tp=2, dedup=True)
    graph = generate(layers_of(model_named("gpt:hidden=256,blocks=2,experts=8"), layout, Form(4)), layout)
    cost = priced(graph)
    with pytest.raises(UserError, match="with dedup, a rank sends a part of each"):
        policy("fastermoe").plan(graph, cost)
    for name, lanes in (("tutel", {"ep", "tp"}), ("janus", {"ep"})):
        plan = policy(name).plan(graph, cost)
        assert not any(layer.visits for layer in plan.graph.layers)
        assert simulate(plan, cost).seconds <= seconds(graph, cost, "gshard")
        assert lanes <= {op.lane for op in plan.graph if op.microbatch >= 0}

"""What is searched for at least ties every policy of the registry; chains are read as they are written."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.overlap.policies.bayes import Bayes, improvement
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.policy import Decided, Policy
from syntony.overlap.policies.search import METHODS, chain_of, describe, planned, search, smaller
from syntony.overlap.policies.table import POLICIES, policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import layers_of
from tests.overlap.models import dense, experts, sharded

CELLS = {
    "dp": (generate(dense(6), Layout(dp=2)), Cost(wires={"dp": ring_wire(2, 300.0, 0.05)})),
    "zero": (generate(dense(6), Layout(dp=2, zero=2)), Cost(wires={"dp": ring_wire(2, 600.0)})),
    "tp": (generate(sharded(3), Layout(tp=2, dp=2)), Cost(wires={
        "tp": ring_wire(2, 60.0, link="box"), "dp": ring_wire(2, 200.0)})),
    "ep": (generate(experts(4), Layout(dp=2, ep=2)), Cost(wires={
        "ep": ring_wire(2, 60.0), "dp": ring_wire(2, 200.0), "edp": ring_wire(1, 200.0)})),
    "pp": (generate(dense(4), Layout(pp=2, dp=2, microbatches=4)), Cost(wires={
        "pp": ring_wire(2, 1000.0), "dp": ring_wire(2, 200.0)})),
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS)
def test_it_ties_the_best_policy(cell: str) -> None:
    graph, cost = CELLS[cell]
    found = search(graph, cost, 1.5)
    best = found.candidates[0]
    assert best.seconds == pytest.approx(simulate(best.plan, cost).seconds)
    best.plan.check()
    for name, one in POLICIES.items():
        try:
            plan = one.plan(graph, cost)
        except UserError:
            continue
        if not plan.simulated:
            assert best.seconds <= simulate(plan, cost).seconds * (1 + 1e-9), name
    assert found.tried > 5


@pytest.mark.parametrize("method", METHODS)
def test_methods_stand_alone(method: str) -> None:
    graph, cost = CELLS["dp"]
    found = search(graph, cost, 0.3, (method,), seed=3)
    assert found.candidates[0].seconds <= min(one.seconds for one in found.candidates if one.chain)
    with pytest.raises(UserError, match="no method 'annealing'; there are grid, bayes, mcmc, dp"):
        search(graph, cost, 1.0, ("annealing",))


def test_expected_improvement_finds_the_least() -> None:
    rng = np.random.default_rng(7)
    points = np.linspace(0, 1, 60)[:, None]
    values = (points[:, 0] - 0.63) ** 2
    known = [int(number) for number in rng.choice(60, 3, replace=False)]
    for _ in range(7):
        known.append(int(np.argmax(improvement(points[known], values[known], points))))
    assert min(values[known]) <= sorted(values)[2], "seed 7"


def test_chains() -> None:
    graph, cost = CELLS["pp"]
    chain = chain_of("zero_bubble:memory=2p+bytescheduler:slice=512K,credit=1M")
    assert [policy.name for policy in chain] == ["zero_bubble", "bytescheduler"]
    assert "+".join(map(describe, chain)) == "zero_bubble:memory=2p+bytescheduler:slice=524288,credit=1048576"
    plan = planned(chain, graph, cost)
    plan.check()
    assert plan.policy == "zero_bubble+bytescheduler"
    assert plan.graph.layout
    assert plan.graph.layout.schedule == "zb2p"
    for wrong, sentence in (
        ("ddp:cap", "is not of the form knob=value"),
        ("dpd", "did you mean ddp"),
        ("ddp:cup=1", "no knob 'cup'"),
    ):
        with pytest.raises(UserError, match=sentence):
            chain_of(wrong)


def test_a_smaller_step_is_as_heavy() -> None:
    layout = Layout(pp=2, dp=2, tp=2, microbatches=4)
    graph = generate(layers_of(model_named("gpt:hidden=64,blocks=32,heads=4"), layout), layout)
    small = smaller(graph)
    assert len(small) < len(graph) / 4

    def totals(step: Graph) -> list[float]:
        computed = sum(op.amount for op in step if not op.kind.moves)
        return [computed, *(sum(op.amount for op in step if op.lane == lane) for lane in ("dp", "tp", "pp"))]

    assert totals(small) == pytest.approx(totals(graph), rel=0.01)
    odd = generate(dense(1) + sharded(8) + dense(3), layout)
    assert smaller(odd) is odd


def test_nothing_is_begun_that_takes_longer_than_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that is the best of a small step, but takes a millisecond for every Op to say so."""
    asked = []

    def patient(graph: Graph, cost: Cost) -> Decided:
        asked.append(len(graph))
        end = time.process_time() + 1e-3 * len(graph)
        while time.process_time() < end:
            pass
        return Decided(defer(graph))

    known = {"fifo": POLICIES["fifo"], "patient": Policy("patient", "none", "", patient, {}, {})}
    monkeypatch.setattr("syntony.overlap.policies.search.POLICIES", known)
    monkeypatch.setattr("syntony.overlap.policies.search.LARGE", 100)
    graph = generate(dense(1502), Layout(dp=2))
    cost = Cost(wires={"dp": ring_wire(2, 300.0)})
    found = search(graph, cost, 1.0, methods=())
    assert [describe(policy) for policy in found.candidates[0].chain] == ["fifo"]
    assert asked == [len(smaller(graph))]
    assert len(found.candidates) == 1


@pytest.mark.parametrize("blocks", [6, 1502])
def test_what_no_policy_can_plan_is_refused_alike_on_steps_of_all_sizes(blocks: int) -> None:
    found = search(generate(dense(blocks), Layout(dp=2)), Cost(wires={}), 1.0, methods=())
    assert found.candidates == ()
    assert "the cost has no wire for lane 'dp'" in found.refused["fifo"]


def test_knobs_are_turned_to_the_fastest_with_few_trials() -> None:
    seed = 2023
    given = policy("bytescheduler", slice=3 << 20, credit=5 << 20)  # of no grid

    def took(one: Policy) -> float:
        return (
            1 + abs(math.log2(one.values["slice"] / (1 << 20))) + abs(math.log2((1 + one.values["credit"]) / (4 << 20)))
        )

    bayes, tried = Bayes(given, random.Random(seed)), list[Policy]()
    while len(tried) < 16 and (one := bayes.pick()) is not None:
        tried.append(one)
        bayes.tell(math.inf if one.values["credit"] == 0 else took(one))
    assert tried[0].values == given.values, seed
    assert len({describe(one) for one in tried}) == len(tried) <= 16, seed
    assert took(bayes.best) == min(took(one) for one in tried if one.values["credit"]), seed
    assert took(bayes.best) <= 2, (seed, describe(bayes.best))  # of 57 settings, from 1 to 25

"""Gathers and scatters taken apart: every shard moves once, the work stays, and less of it is waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.overlap.policies.orders import in_order
from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.policies.passes.loop import loop
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.predict.traffic import traffic
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.shards import is_round, offsets, shifts
from tests.overlap.policies.steps import starting

SPEC = model_named("gpt:hidden=256,blocks=2,heads=4,ffn=768,seq=128")


def step(**sizes: object) -> Graph:
    layout = Layout(**{"tp": 4, **sizes})  # type: ignore[arg-type]
    return generate(layers_of(SPEC, layout, Form(4, 4)), layout)


def cost_of(graph: Graph) -> Cost:
    """Moving takes as long as computing."""
    computed = sum(op.amount for op in graph if op.lane == COMPUTE and op.microbatch >= 0)
    moved = sum(op.amount for op in graph if op.lane == "tp" and op.microbatch >= 0) * 3 / 4
    return Cost(computed, {"tp": ring_wire(4, moved), "dp": ring_wire(2, moved)})


@given(ranks=st.integers(2, 40), ways=st.sampled_from((1, 2)))
def test_every_other_rank_is_met_once(ranks: int, ways: int) -> None:
    first, *rounds = offsets(ranks, ways)
    assert first == (0,)
    assert sorted(by for one in rounds for by in one) == list(range(1, ranks))
    assert len(rounds) == (ranks - 1 if ways == 1 else ranks // 2)
    for one in rounds:
        assert {-by % ranks for by in one} == set(one) or ways == 1  # as many up as down


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize(
    "sizes", [{}, {"microbatches": 2, "recompute": True}, {"dp": 2, "zero": 3}, {"tp": 2, "pp": 2}]
)
def test_work_and_bytes_stay(ways: int, sizes: dict[str, object]) -> None:
    graph = step(**sizes)
    assert graph.layout is not None
    apart = loop(graph, ways)
    apart.check()
    for lane in ("tp", COMPUTE):
        every = [sum(op.amount for op in one if op.lane == lane) for one in (graph, apart)]
        ranks = graph.groups["tp"]
        rounds = [op for op in apart if op.lane == "tp" and is_round(apart, op)]
        if lane == COMPUTE:
            assert every[1] == pytest.approx(every[0])
        else:  # of a gather's bytes a rank has its share already
            left = every[1] - sum(op.amount for op in rounds)
            assert left + sum(op.amount for op in rounds) * ranks / (ranks - 1) == pytest.approx(every[0])
    met = Counter((op.key.whole, by % ranks) for op in rounds for by in shifts(apart, op))
    assert set(met.values()) == {1}
    assert len(met) == (ranks - 1) * len({whole for whole, _ in met})
    assert all(op.sources == (op.key.whole,) for op in rounds)
    plans = [Plan("", one, in_order(one)) for one in (graph, apart)]
    before, after = (traffic(plan, graph.layout)["tp"] for plan in plans)
    assert np.array_equal(before, after)  # who sends how much to whom


def test_a_shard_is_computed_when_it_has_come_and_leaves_when_it_is_made() -> None:
    graph = loop(step())
    layer = next(i for i, one in enumerate(graph.layers) if one.name == "block_0")
    names = [move.name for move in graph.layers[layer].transfers]
    feed = names.index("enter_feed") + 1

    def deps(key: OpKey) -> set[str]:
        return {str(dep) for dep in graph[key].deps}

    for part in range(4):
        own, here = OpKey(Kind.FORWARD, layer, 0, feed, part=(part,)), f"enter_feed.{layer}.0.f"
        assert deps(own) == ({f"{here}/{part}"} if part else {f"fwd.{layer}.0.{feed - 1}"})
        if part:
            assert deps(OpKey("leave_feed", layer, 0, direction="f", part=(part,))) == {str(own)}
    whole = deps(OpKey(Kind.FORWARD, layer, 0, feed + 1))
    assert whole == {f"fwd.{layer}.0.{feed}/0", *(f"leave_feed.{layer}.0.f/{part}" for part in (1, 2, 3))}
    attend = OpKey(Kind.FORWARD, layer, 0, 2)  # all tokens
    assert deps(attend) == {f"fwd.{layer}.0.1/{part}" for part in range(4)}


def test_one_direction_hides_more_and_two_start_less_often() -> None:
    graph = step()

    def seconds(name: str, start: float, **knobs: object) -> float:
        cost = cost_of(graph)
        cost = replace(cost, wires={lane: starting(wire, start) for lane, wire in cost.wires.items()})
        return simulate(policy(name, **knobs).plan(graph, cost), cost).seconds

    cheap, dear = 0.0, 0.05  # seconds that an op occupies its link whatever its size
    assert seconds("fifo", cheap) == pytest.approx(2.0, rel=1e-2)
    assert seconds("collective_matmul", cheap, ways=1) < 1.45 < seconds("collective_matmul", cheap, ways=2)
    assert seconds("collective_matmul", dear, ways=2) < seconds("collective_matmul", dear, ways=1)
    for start in (cheap, dear):
        ways = [seconds("collective_matmul", start, ways=ways) for ways in (1, 2)]
        assert seconds("collective_matmul", start) == pytest.approx(min(ways))


def test_microbatches_beside_one_another_hide_the_rest() -> None:
    graph = step(microbatches=4)
    cost = cost_of(graph)
    least = simulate(policy("interleave", pieces=1).plan(graph, cost), cost).seconds
    plan = policy("interleave").plan(graph, cost)
    assert any(is_round(plan.graph, op) for op in plan.graph)
    assert simulate(plan, cost).seconds < min(least, 1.15)


@pytest.mark.parametrize("sizes", [{"sequence": False}, {"tp": 1, "dp": 2}])
def test_where_nothing_is_gathered_nothing_is_taken_apart(sizes: dict[str, object]) -> None:
    with pytest.raises(UserError, match="sequence=true"):
        loop(step(**sizes))


def test_what_was_cut_otherwise_stays_so() -> None:
    with pytest.raises(UserError, match="cut already"):
        loop(chunk(step(), 2, ("tp",)))

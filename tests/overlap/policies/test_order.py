"""Computing in another order: what hides what, and the memory that it takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from syntony.base.command import UserError
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from tests.overlap.policies.steps import MOVED, STEPS, dense, priced, seconds, tensor


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


@pytest.mark.parametrize("pp", [1, 2])
def test_shuffled_passes_gather_their_weights_apart(pp: int) -> None:
    """Neither may wait for weights that are gathered for the other's later layers."""
    layout = Layout(dp=2, tp=2, pp=pp, zero=3, microbatches=4)
    graph = generate(layers_of(model_named("thin"), layout), layout)
    assert seconds(graph, priced(graph), "dualpipe") < seconds(graph, priced(graph), "fifo")


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


@pytest.mark.parametrize("ratio", [*(pytest.param(ratio, marks=pytest.mark.sweep) for ratio in (0.5, 1.0)), 1.5])
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

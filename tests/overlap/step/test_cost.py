"""Costs by hand: collectives on a ring, triggered parts, measured layers whose gradients are made from factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntony.overlap.policies.passes.cut import slice
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind
from tests.overlap.models import dense
from tests.overlap.plans import key


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_an_all_reduce_costs_a_reduce_scatter_and_an_all_gather(ranks: int) -> None:
    kinds = ring_wire(ranks, 50.0, 0.25).kinds
    for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER):
        assert kinds[kind] == pytest.approx((0.25 * (ranks - 1), (ranks - 1) / ranks / 50.0, 0.0))
    both = np.add(kinds[Kind.REDUCE_SCATTER], kinds[Kind.ALL_GATHER])
    assert kinds[Kind.ALL_REDUCE] == pytest.approx(tuple(both))


def test_products_of_factors_are_not_part_of_the_backward() -> None:
    """It was measured with them: 2/3 of it are for inputs."""
    layer = replace(dense(1)[0], backward=(1.0, 0.5), sums="factors", factors=10)
    cost = Cost(1.0, {"dp": ring_wire(2, 1.0)}, measured={key("fwd.0.0"): 5.0, key("bwd.0.0"): 9.0})
    seconds, _ = cost.seconds(generate([layer], Layout(dp=2)))
    np.testing.assert_allclose(seconds[:2], [5.0, 6.0])


def test_of_triggered_parts_only_the_first_has_a_latency() -> None:
    graph = slice(generate(dense(1, weights=1024), Layout(dp=2)), 512)
    cost = Cost(1.0, {"dp": ring_wire(2, 1.0, 0.25)})
    parts = [row for row, op in enumerate(graph) if op.kind is Kind.ALL_REDUCE]
    for triggered, expected in ((False, [0.5, 0.5]), (True, [0.5, 0.0])):
        _, waited = cost.seconds(replace(graph, triggered=triggered))
        assert waited[parts].tolist() == expected

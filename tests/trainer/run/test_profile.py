"""What ranks have measured, as the costs of steps that policies make."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.trainer.run.measure.profile import cost_of, launches
from tests.overlap.models import experts


@pytest.mark.parametrize("replicas", [2, 4])
def test_levels_are_told_from_one_group(replicas: int) -> None:
    layout = Layout(dp=8)
    step = generate((LayerSpec("0", 1e6, (1e9,)),), layout)
    seen = {("dp", kind): line for kind, line in ring_wire(8, 1e9, 1e-5).kinds.items()}
    cut = generate(step.layers, replace(layout, zero=1, replicas=replicas))
    found = cost_of(step, {}, seen).wires_of(cut)
    for lane, ranks in (("dp", 8 // replicas), ("replicas", replicas)):
        expected = ring_wire(ranks, 1e9, 1e-5)
        for op in cut:
            if op.lane == lane:
                assert found[lane].kinds[op.kind] == pytest.approx(expected.kinds[op.kind])


@pytest.mark.parametrize("parts", [2, 4])
def test_what_parts_take_is_told_from_a_step_that_is_cut(parts: int) -> None:
    step = generate(experts(4), Layout(dp=2, ep=2))
    cut = chunk(step, parts, ("ep",))
    whole = {op.key: [4.0 + op.layer] for op in step if op.lane == COMPUTE}
    expected = Cost(measured={key: took for key, (took,) in whole.items()}, launch=0.5, start=0.25)
    seconds, _ = replace(expected, wires={lane: ring_wire(2, 1e9) for lane in ("dp", "ep", "edp")}).seconds(cut)
    seen = {op.key: [float(took)] for op, took in zip(cut, seconds, strict=True) if op.lane == COMPUTE}
    assert launches(cut, whole, seen) == pytest.approx((expected.launch, expected.start))
    beside = [op.key for op in cut if op.lane == COMPUTE and not op.of and seen[op.key][0] > whole[op.key][0]]
    for kind in (Kind.FORWARD, Kind.BACKWARD):  # one starts parts, one takes them
        assert {key.segment for key in beside if key.kind == kind} == {0, 2}

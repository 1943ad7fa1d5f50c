"""What ranks have measured, as the costs of steps that policies make."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from syntony.overlap.step.cost import ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.trainer.run.profile import cost_of


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

"""What policies gain: closed forms, and what their papers are known for."""

from __future__ import annotations

import pytest

from syntony.overlap.policies.table import policy
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.plan import Plan
from tests.overlap.policies.steps import STEPS, WEIGHTS, dense, gain, gain_of, priced, seconds

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
    slow = priced(graph, fixed=0.08)
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


def test_hardware_that_starts_transfers_pays_one_launch() -> None:
    graph = generate(*STEPS["tp"])
    cost = priced(graph, alpha=1e-2, fixed=1e-3)
    assert gain_of(graph, cost, "t3", "collective_matmul", pieces=8) > 1.01
    assert gain_of(graph, priced(graph), "t3", "collective_matmul", pieces=8) == pytest.approx(1)
    plan = policy("t3").plan(graph, cost)
    assert Plan.from_text(plan.text).graph.triggered

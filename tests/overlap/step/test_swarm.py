"""Swarms: microbatches go by speed, nothing is lost on the way, and devices move to where they are needed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes.relayout import first_come
from syntony.overlap.policies.policy import LAST
from syntony.overlap.predict.machine import machine_of
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.predict.swarm import cost_of, predicted
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.swarm import Swarm, generate_swarm, work_of
from tests.overlap.models import dense
from tests.sampled import examples

SPEEDS = st.sampled_from((0.5, 1.0, 2.0, 3.0))
SWARMS = st.lists(st.lists(SPEEDS, min_size=1, max_size=3), min_size=1, max_size=3).map(
    lambda stages: Swarm(tuple(map(tuple, stages)))
)


def test_microbatches_go_by_speed() -> None:
    swarm = Swarm(((3.0, 1.0), (1.0, 1.0, 2.0)))
    assert [Counter(row) for row in swarm.dealt(8)] == [{0: 6, 1: 2}, {2: 2, 3: 2, 4: 4}]
    assert swarm.dealt(4, evenly=True) == ((0, 1, 0, 1), (2, 3, 4, 2))


@given(swarm=SWARMS, microbatches=st.integers(1, 5))
@examples(40)
def test_nothing_is_lost(swarm: Swarm, microbatches: int) -> None:
    layers, dealt = dense(4), swarm.dealt(microbatches)
    graph = generate_swarm(layers, swarm, dealt)
    computed: Counter[tuple[Kind, int]] = Counter()
    for op in graph:
        if op.lane == COMPUTE and op.microbatch >= 0:
            computed[op.kind, op.layer] += 1
            stage = next(s for s, chunk in enumerate(swarm.chunks(layers)) if op.layer in chunk)
            assert op.device == dealt[stage][op.microbatch]
    assert set(computed.values()) == {microbatches}
    assert len(computed) == 2 * len(layers)
    updated = Counter(op.layer for op in graph if op.kind is Kind.OPTIMIZE)
    for stage, chunk in zip(swarm.stages, swarm.chunks(layers), strict=True):
        assert all(updated[i] == len(stage) for i in chunk)
    assert sum(op.holds - op.frees for op in graph) == pytest.approx(0, abs=1)
    assert simulate(_plan(graph), cost_of(machine_of("cpu"))).seconds > 0


@given(swarm=SWARMS, work=st.lists(st.floats(1, 9), min_size=3, max_size=3))
@examples(60)
def test_devices_move_to_where_they_are_needed(swarm: Swarm, work: list[float]) -> None:
    work = work[: len(swarm.stages)]
    moved = swarm.rebalanced(work)
    assert sorted(moved.speeds) == sorted(swarm.speeds)
    assert _slowest(moved, work) <= _slowest(swarm, work)


@pytest.mark.parametrize(
    ("stages", "work", "best"),
    [
        (((1.0,), (1.0, 1.0, 1.0)), [3.0, 1.0], 1.0),
        (((2.0, 2.0), (1.0, 1.0)), [1.0, 1.0], 1 / 3),  # two devices change places, one after the other
        (((1.0, 1.0, 1.0, 1.0), (1.0,), (1.0,)), [1.0, 1.0, 1.0], 0.5),
    ],
)
def test_rebalanced_by_hand(stages: tuple[tuple[float, ...], ...], work: list[float], best: float) -> None:
    assert _slowest(Swarm(stages).rebalanced(work), work) == pytest.approx(best)


def test_one_device_a_stage_is_a_pipeline() -> None:
    """Ordered alike, its steps take as long as those of a pipeline."""
    layers, cost = dense(6), cost_of(machine_of("cpu:network=1e6,alpha=1e-4,flops=100"))
    swarm = Swarm(((1.0,), (1.0,), (1.0,)))
    mine = generate_swarm(layers, swarm, swarm.dealt(4))
    pipeline = generate(layers, Layout(pp=3, microbatches=4), chunks=swarm.chunks(layers))

    def seconds(graph: Graph) -> float:
        return simulate(_plan(first_come(graph, cost, orders.staggered(0.2))), cost).seconds

    assert seconds(mine) == pytest.approx(seconds(pipeline), rel=1e-3)


def test_more_speed_is_used() -> None:
    layers = layers_of(model_named("thin"), Layout(), Form(4, 4))
    turn, speed, moved = predicted(layers, Swarm(((3.0, 1.0), (1.0, 1.0, 1.0))), 12, machine_of("cpu:network=1e9"))
    assert speed.seconds < turn.seconds
    assert moved.seconds < speed.seconds
    assert all(row.seconds >= row.bound for row in (turn, speed, moved))


def test_square_cube_law() -> None:
    """Twice the width: four times the computing, twice the message."""
    narrow, wide = (
        predicted(
            layers_of(model_named(f"gpt:hidden={width},blocks=4,heads=8,seq=64,vocab=256"), Layout(), Form(1, 4)),
            Swarm(((1.0,), (1.0,))), 2, machine_of("cpu:alpha=0"),
        )[0]
        for width in (1024, 2048)
    )  # fmt: skip
    assert wide.moving == pytest.approx(2 * narrow.moving)
    assert wide.computing == pytest.approx(4 * narrow.computing, rel=0.05)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["overlap", "swarm", "--model", "thin", "--microbatches", "4"]
    assert main([*words, "--stages", "2:1,1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["in turn", "by speed", "by speed, rebalanced"]
    assert main([*words, "--stages", "2:x,1"]) == 2
    assert "--stages 2:x,1" in capsys.readouterr().err
    with pytest.raises(UserError, match="each must have a device"):
        Swarm(((1.0,), ()))


def _plan(graph: Graph) -> Plan:
    cost = cost_of(machine_of("cpu"))
    return Plan("", graph, orders.listed(graph, cost, orders.critical(graph, cost), LAST), priorities=LAST)


def _slowest(swarm: Swarm, work: list[float]) -> float:
    return max(each / sum(stage) for each, stage in zip(work, swarm.stages, strict=True))


def test_work_is_that_of_all_layers() -> None:
    layers = dense(5)
    swarm = Swarm(((1.0,), (2.0,)))
    assert sum(work_of(layers, swarm.chunks(layers))) == pytest.approx(sum(3 * sum(layer.segments) for layer in layers))

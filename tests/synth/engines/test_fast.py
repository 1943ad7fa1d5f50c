"""Plans of all_to_all_v: Birkhoff's stages are exact, every byte arrives once, and wrong plans are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.fast.stage_plan import (
    StagePlan,
    WrongPlanError,
    bound_seconds,
    check,
    messages_of,
    stage_plan,
)
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.levels import Levels
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.run import run
from syntony.topologies.hosts import hosts_of
from syntony.topologies.parse import parse
from tests.sampled import examples
from tests.synth.networks import replay

Matrix = NDArray[np.int64]


def _boxes(boxes: int, per_box: int) -> Levels:
    return Levels(np.arange(boxes * per_box).reshape(boxes, per_box), "given")


@st.composite
def matrices(draw: st.DrawFn, size: int) -> Matrix:
    """Few or many entries, small or large."""
    entries = draw(arrays(np.int64, (size, size), elements=st.integers(0, draw(st.sampled_from([1, 9, 10**12])))))
    return np.where(draw(arrays(np.bool_, (size, size))), entries, 0)


@examples(60)
@given(st.data())
def test_stages_are_few(data: st.DataObject) -> None:
    """Birkhoff's bound for boxes of one rank, and the cuts of stages longer than a sixteenth of all."""
    size = data.draw(st.integers(2, 9))
    matrix = data.draw(matrices(size))
    found = stage_plan(_boxes(size, 1), matrix)
    check(found, matrix)
    total = int(found.length.sum())
    assert len(found.length) <= size * size - 2 * size + 2 + total // max(1, total // 16)


def test_boxes_beyond_one_word() -> None:
    matrix = np.random.default_rng(5).integers(0, 100, (130, 130))
    check(stage_plan(_boxes(130, 1), matrix), matrix)


def test_sums_that_no_plan_can_hold() -> None:
    with pytest.raises(UserError, match="sums to more than"):
        stage_plan(_boxes(3, 1), np.asarray([[0, 2**62, 1], [0, 0, 0], [0, 0, 0]], np.int64))


@examples(60)
@given(st.data())
def test_plans_are_right_and_balanced(data: st.DataObject) -> None:
    boxes, per_box = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    matrix = data.draw(matrices(boxes * per_box))
    found = stage_plan(_boxes(boxes, per_box), matrix)
    check(found, matrix)
    staged = found.stage >= 0
    for rank in (found.out, found.into):  # every NIC of a box carries the same, up to one byte per pair of boxes
        carried = np.bincount(rank[staged], found.bytes[staged], boxes * per_box).reshape(boxes, per_box)
        assert (carried.max(axis=1) - carried.min(axis=1) <= boxes - 1).all()


def test_boxes_of_scattered_ranks() -> None:
    levels = Levels(np.asarray([[3, 0, 4], [1, 5, 2]]), "given")
    matrix = np.random.default_rng(1).integers(0, 50, (6, 6))
    found = stage_plan(levels, matrix)
    check(found, matrix)
    assert set(found.box[[3, 0, 4]].tolist()) == {0}


def _mutants(found: StagePlan) -> list[StagePlan]:
    def changed(name: str, row: int, value: int) -> StagePlan:
        column = getattr(found, name).copy()
        column[row] = value
        return replace(found, **{name: column})

    row = int(np.flatnonzero(found.stage >= 0)[0])
    other = int(np.flatnonzero(found.box != found.box[found.out[row]])[0])
    return [
        changed("bytes", row, int(found.bytes[row]) + 1),
        changed("offset", row, int(found.offset[row]) + 1),
        changed("target", row, int(found.source[row])),
        changed("out", row, other),
        changed("into", row, int(found.out[row])),
        changed("stage", row, -1),
        changed("length", 0, int(found.length[0]) * 2),
        replace(found, stage=np.where(found.stage >= 0, 0, found.stage)),
    ]


def test_wrong_plans_are_refused() -> None:
    matrix = np.random.default_rng(3).integers(1, 1000, (12, 12))
    np.fill_diagonal(matrix, 0)
    for mutant in _mutants(stage_plan(_boxes(3, 4), matrix)):
        with pytest.raises(WrongPlanError):
            check(mutant, matrix)


def test_what_is_no_matrix() -> None:
    with pytest.raises(UserError, match="has shape"):
        stage_plan(_boxes(2, 2), np.zeros((3, 4), np.int64))
    with pytest.raises(UserError, match="fewer than no bytes for rank 3"):
        stage_plan(_boxes(2, 2), -np.eye(4, dtype=np.int64)[[0, 3, 2, 1]])


def test_the_simulated_plan_is_near_the_bound() -> None:
    topology = parse("dgx-h100:4")
    matrix = np.random.default_rng(7).zipf(1.5, (32, 32)).clip(max=10_000) * 14336
    np.fill_diagonal(matrix, 0)
    found = stage_plan(_boxes(4, 8), matrix)
    check(found, matrix)
    job = Job("plan", tuple(range(32)), messages_of(found))
    seconds = run(topology, [job], Choice.parse("spray")).seconds
    bound = float(bound_seconds(topology, hosts_of(topology), matrix))
    assert bound <= seconds <= 1.1 * bound


@pytest.mark.parametrize("name", ["dgx-a100:2", "rail:boxes=3,gpus=4,rails=4", "fat-tree:4"])
def test_schedules_of_even_blocks(name: str) -> None:
    topology = parse(name)
    schedule = engine_named("fast").run(topology, Collective.make("all_to_all", topology.ranks), 1 << 20, Budget())
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    replay(schedule)


@examples(10)
@given(st.data())
def test_schedules_of_uneven_blocks_carry_the_plan(data: st.DataObject) -> None:
    topology = parse("rail:boxes=3,gpus=2,rails=2")
    sizes = data.draw(arrays(np.int64, 36, elements=st.integers(1, 40)))
    collective = Collective.make("all_to_all", 6, block_sizes=sizes.tolist())
    schedule = engine_named("fast").run(topology, collective, 1 << 20, Budget())
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    replay(schedule)
    assert (np.bincount(schedule.collective.chunks.block, schedule.collective.chunks.weight) == sizes).all()


def test_what_the_engine_does_not_do() -> None:
    with pytest.raises(EngineError, match="is for all_to_all, not for all_gather"):
        engine_named("fast").run(parse("dgx-a100:2"), Collective.make("all_gather", 16), 1 << 20, Budget())
    with pytest.raises(EngineError, match="not a product of levels"):
        engine_named("fast").run(parse("full:4"), Collective.make("all_to_all", 4), 1 << 20, Budget())
    with pytest.raises(EngineError, match="other ranks lie between"):
        engine_named("fast").run(parse("torus:4x4"), Collective.make("all_to_all", 16), 1 << 20, Budget())

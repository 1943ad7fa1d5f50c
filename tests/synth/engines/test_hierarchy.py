"""Engine hierarchy: levels are found, every composition is right, and some meet the bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.hierarchy.compositions import COMPOSITIONS
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.levels import LevelsError, given_levels, levels_of
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse
from tests.sampled import examples, one_in
from tests.synth.networks import replay

SHAPES = {
    "dgx-a100:2": (2, 8),
    "rail:boxes=3,gpus=4,rails=4": (3, 4),
    "superpod:units=2,boxes=2,gpus=4,spines=2": (4, 4),
    "torus:3x4": (3, 4),
    "torus:4x4x4": (4, 4, 4),
    "mesh:2x3x2": (2, 3, 2),
    "hypercube:3": (2, 2, 2),
    "fat-tree:4": (4, 2, 2),
    "dragonfly:a=4,p=2,h=2,g=3": (12, 2),
}
NAMES = ["dgx-a100:2", "rail:boxes=3,gpus=4,rails=4", "torus:3x4", "mesh:2x3x2", "fat-tree:4"]

NO_RINGS = {"torus2d": NAMES[3:4], "blueconnect": NAMES[3:4], "accl": NAMES[1:4]}
"""Where a level's lines are no rings, or no power of two."""


def _made(name: str, kind: str, argument: str, **more: object) -> Schedule:
    topology = parse(name)
    collective = Collective.make(kind, **({"ranks": topology.ranks} | more))  # type: ignore[arg-type]
    schedule = engine_named(f"hierarchy{argument}").run(topology, collective, 1 << 24, Budget())
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    return schedule


@pytest.mark.parametrize("name", SHAPES)
def test_levels(name: str) -> None:
    topology = parse(name)
    levels = levels_of(topology, Collective.make("all_gather", topology.ranks))
    assert levels.shape == SHAPES[name]
    assert sorted(levels.grid.reshape(-1).tolist()) == list(range(topology.ranks))
    places = levels.coordinates
    assert all(levels.grid[tuple(place)] == rank for rank, place in enumerate(places.tolist()))
    for level in range(len(levels)):
        for line in levels.lines(level):
            assert (np.delete(places[line], level, axis=1) == np.delete(places[line[0]], level)).all()


@pytest.mark.parametrize("name", ["full:8", "ring:6", "star:4"])
def test_what_has_no_levels(name: str) -> None:
    topology = parse(name)
    with pytest.raises(LevelsError, match="not a product of levels"):
        levels_of(topology, Collective.make("all_gather", topology.ranks))
    with pytest.raises(EngineError, match="not a product of levels"):
        _made(name, "all_gather", "")


@pytest.mark.parametrize("shape", ["", "4", "4x", "0x8", "1x8", "x", "4x4x", "4*2"])
def test_shapes_that_are_none(shape: str) -> None:
    with pytest.raises(LevelsError, match="not levels"):
        given_levels(shape, 8)


@pytest.mark.parametrize(("composition", "kind"), one_in(2, [composition.name for composition in COMPOSITIONS], KINDS))
def test_every_composition_of_every_kind(composition: str, kind: str) -> None:
    apart = kind in ("all_to_all", "gather", "scatter")  # who solves a level is no matter then
    for name in NAMES[2:] if apart else NAMES:
        if apart and composition not in ("two-level", "themis"):
            continue
        if name in NO_RINGS.get(composition, ()) and kind not in ("broadcast", "reduce"):
            with pytest.raises(EngineError, match=r"power of two|lie between"):
                _made(name, kind, f":{composition}")
            continue
        schedule = _made(name, kind, f":{composition}")
        assert schedule.engine == f"hierarchy:{composition}"
        if len(schedule.transfers) < 1000:
            replay(schedule)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("name", ["torus:4x4", "torus:3x3x3", "hypercube:4"])
def test_rotation_meets_the_bound_where_levels_are_alike(name: str, kind: str) -> None:
    assert gap_of(_made(name, kind, ":themis")) == 0
    assert gap_of(_made(name, kind, ":blueconnect")) > 0  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all"])
def test_two_levels_meet_the_bound_of_boxes(kind: str) -> None:
    assert gap_of(_made("dgx-a100:4", kind, ":two-level")) == 0


@examples(15)
@given(st.data())
def test_any_group_and_root(data: st.DataObject) -> None:
    per_box = data.draw(st.sampled_from([2, 3, 4]))
    members = [8 * box + gpu for box in range(2) for gpu in data.draw(st.permutations(range(8)))[:per_box]]
    kind = data.draw(st.sampled_from(KINDS))
    root = data.draw(st.integers(0, len(members) - 1)) if kind in ("broadcast", "reduce", "gather", "scatter") else 0
    replay(_made("dgx-a100:2", kind, ":themis", ranks=None, members=members, root=root))


def test_uneven_boxes_have_no_levels() -> None:
    with pytest.raises(EngineError, match="boxes of equal size"):
        _made("dgx-a100:2", "all_gather", "", ranks=None, members=[0, 1, 2, 8])


def test_given_levels_and_blocks_of_unequal_size() -> None:
    schedule = _made("full:6", "all_gather", ":themis@2x3", block_sizes=[1, 2, 3, 4, 5, 6])
    replay(schedule)
    sizes = np.bincount(schedule.collective.chunks.block, schedule.collective.chunks.weight)
    assert (sizes * 1 == sizes[0] * np.arange(1, 7)).all()
    with pytest.raises(EngineError, match="are 8 ranks, but there are 6"):
        _made("full:6", "all_gather", ":themis@2x4")
    with pytest.raises(EngineError, match="did you mean themis"):
        _made("full:6", "all_gather", ":temis@2x3")


def test_the_best_is_no_slower_than_any() -> None:
    from syntony.synth.simulation.schedule_simulator import simulate

    best = _made("rail:boxes=3,gpus=4,rails=4", "all_reduce", "")
    for composition in ("two-level", "blueconnect", "themis"):
        other = _made("rail:boxes=3,gpus=4,rails=4", "all_reduce", f":{composition}")
        assert simulate(best, 1 << 24).seconds <= simulate(other, 1 << 24).seconds

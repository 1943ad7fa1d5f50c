"""Placements are all there are, programs sum, and times are those of their own groups."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.synth.dsl import DslError
from syntony.synth.dsl.reductions import as_program
from syntony.synth.model.collective import Collective
from syntony.synth.placement.matrices import Axis, placements, read_axes
from syntony.synth.placement.reductions import COLLECTIVES, MOST_STEPS, Step, applied, describe, programs, verified
from syntony.synth.placement.search import Timer, search
from syntony.synth.symmetry.levels import Levels, levels_of
from syntony.topologies.parse import parse


def _levels(*shape: int) -> Levels:
    return Levels(np.arange(math.prod(shape)).reshape(shape), "given")


def test_placements_are_the_matrices_with_these_rows_and_columns() -> None:
    axes = read_axes("dp4xtp2xpp2", 16)
    found = list(placements(_levels(2, 8), axes))
    assert len({placement.factors for placement in found}) == len(found) == 3
    assert {str(placement) for placement in found} == {
        "dp[1 4] tp[1 2] pp[2 1]",
        "dp[1 4] tp[2 1] pp[1 2]",
        "dp[2 2] tp[1 2] pp[1 2]",
    }


@pytest.mark.parametrize("reduced", [["dp"], ["tp"], ["dp", "pp"], ["dp", "tp", "pp"]])
def test_groups_are_the_ranks_that_differ_in_the_reduced_axes_only(reduced: list[str]) -> None:
    axes = read_axes("dp4xtp2xpp3", 24)
    for placement in placements(_levels(2, 3, 4), axes):
        groups = placement.groups(reduced)
        assert sorted(groups.reshape(-1).tolist()) == list(range(24))
        places = placement.coordinates
        assert len(np.unique(places, axis=0)) == 24
        kept = [column for column, axis in enumerate(axes) if axis.name not in reduced]
        for group in groups.reshape(len(groups), -1):
            assert (places[group][:, kept] == places[group[0]][kept]).all()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dp4", "are 4 ranks"),
        ("xp4", "are not axes"),
        ("dp2xdp4", "one axis twice"),
        ("row3xcolumn3", "are 9 ranks"),
        ("dp0x8", "not axes"),
    ],
)
def test_what_are_no_axes(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_axes(text, 8)


@pytest.mark.parametrize(
    "shape", [(), (2,), (5,), (2, 2), (2, 3), (4, 2), pytest.param((2, 2, 2), marks=pytest.mark.soak)]
)
def test_every_program_sums(shape: tuple[int, ...]) -> None:
    found = programs(shape)
    assert len({describe(program) for program in found}) == len(found) >= 1
    assert all(len(program) <= MOST_STEPS and verified(program, shape) for program in found)


@pytest.mark.parametrize(("shape", "every"), [((2,), 1), ((5,), 1), ((2, 2), 2), ((2, 3), 9)])
def test_programs_can_run(shape: tuple[int, ...], every: int) -> None:
    """`as_program` proves what it makes; a program that does not sum is none."""
    for program in programs(shape)[::every]:
        made = as_program(program, shape)
        assert (made.collective, made.ranks) == ("all_reduce", math.prod(shape))
    with pytest.raises(DslError, match="never writes"):
        as_program((Step("reduce_scatter", (0,), False, 1.0),), shape)


def test_known_programs_are_found() -> None:
    found = {describe(program) for program in programs((2, 4))}
    assert {
        "all_reduce[0,1]",
        "reduce_scatter[1]; all_reduce[0]; all_gather[1]",
        "reduce[1]; all_reduce[0] of leaders; broadcast[1]",
        "reduce_scatter[1]; reduce_scatter[0]; all_gather[0]; all_gather[1]",
    } <= found


def test_wrong_programs_do_not_sum() -> None:
    scatter, over, gather = (
        Step("reduce_scatter", (1,), False, 1.0),
        Step("all_reduce", (0,), False, 0.25),
        Step("all_gather", (1,), False, 1.0),
    )
    assert verified((scatter, over, gather), (2, 4))
    leaders = Step("all_reduce", (0,), True, 1.0)
    for wrong in [(scatter, over), (over, gather), (scatter, gather), (scatter, leaders, gather)]:
        assert not verified(wrong, (2, 4))


def test_steps_that_make_no_sense_are_refused() -> None:
    start = np.zeros((4, 4, 4), bool)
    start[np.arange(4), :, np.arange(4)] = True
    everyone, pairs = np.arange(4)[None], np.arange(4).reshape(2, 2)
    assert applied("all_gather", start, everyone) is None  # the same chunks
    summed = applied("all_reduce", start, pairs)
    assert summed is not None
    assert summed[1] == 4
    assert applied("all_reduce", summed[0], everyone) is None  # contributions twice
    scattered = applied("reduce_scatter", start, everyone)
    assert scattered is not None
    assert applied("all_reduce", scattered[0], everyone) is None  # different chunks
    assert applied("reduce_scatter", start, np.arange(3)[None]) is None  # 4 chunks on 3 ranks
    assert "broadcast" in COLLECTIVES


def test_equal_ranks_in_other_groups_take_another_time() -> None:
    topology = parse("dgx-a100:2")
    timer = Timer(topology, 1 << 26)
    group = np.arange(16).reshape(1, 2, 8)
    inside, everyone = (Step("all_reduce", levels, False, 1.0) for levels in [(1,), (0, 1)])
    assert timer.seconds((inside,), group) < timer.seconds((everyone,), group) / 2


def test_the_search_on_boxes() -> None:
    topology = parse("rail:boxes=2,gpus=4,rails=1")
    levels = levels_of(topology, Collective.make("all_gather", 8))
    candidates = search(topology, levels, [Axis("dp", 4), Axis("tp", 2)], ["dp"], 1 << 28)
    assert [str(candidate.placement) for candidate in candidates] == ["dp[1 4] tp[2 1]", "dp[2 2] tp[1 2]"]
    assert describe(candidates[1].program) == "reduce_scatter[1]; all_reduce[0]; all_gather[1]"
    assert candidates[1].speedup > 1.2
    assert all(candidate.seconds <= candidate.default for candidate in candidates)


def test_groups_that_are_too_large() -> None:
    with pytest.raises(UserError, match="up to 64"):
        programs((2, 64))


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    words = ["place", "dgx-a100:2", "--axes", "dp8xtp2", "--size", "16M", "-o", str(path)]
    words += ["--program", str(tmp_path / "sum.json")]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["levels"] == [2, 8]
    assert len(answer["placements"]) == 2
    assert main(["verify", answer["program"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"]
    best = json.loads(path.read_text())
    assert best["factors"] == answer["placements"][0]["factors"]
    assert sorted((place["dp"], place["tp"]) for place in best["ranks"]) == [(d, t) for d in range(8) for t in range(2)]
    assert all(len(step["groups"]) >= 1 for step in best["program"])
    assert main([*words, "--force"]) == 0
    assert "times as fast as the worst" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dgx-a100:2", "--axes", "dp8"], "are 8 ranks, but the topology has 16"),
        (["dgx-a100:2", "--axes", "dp8xtp2", "--reduce", "pp"], "--reduce: no axis 'pp'; there are dp, tp"),
        (["full:4", "--axes", "dp2xtp2"], "not a product of levels"),
        (["full:4", "--axes", "dp2xtp2", "--levels", "2x3"], "are 6 ranks"),
        (["full:4", "--axes", "dp2xtp2", "-o", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str], words: list[str], sentence: str) -> None:
    assert main(["place", *words]) == 2
    assert sentence in capsys.readouterr().err

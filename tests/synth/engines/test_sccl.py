"""The exact engine: rows of SCCL's DGX-1 table, refusals with their reason, and agreement with another engine."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, UndecidedError
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.engines.sccl import exact, frontier
from syntony.synth.engines.sccl.exact import chunk_count, solve_exactly
from syntony.synth.engines.sccl.frontier import pareto
from syntony.synth.engines.sccl.search import run
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.network import round_bandwidth
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.networks import collectives, networks, replay

DGX1 = [
    ("all_gather", 1, 2, 2),
    ("all_gather", 2, 2, 3),
    ("all_gather", 3, 3, 4),
    ("all_gather", 4, 3, 5),
    ("reduce_scatter", 2, 2, 3),
    ("broadcast", 2, 2, 2),
    ("broadcast", 6, 3, 3),
    ("broadcast", 12, 4, 4),
    ("reduce", 6, 3, 3),
    ("gather", 3, 2, 4),
    ("scatter", 2, 2, 3),
    ("all_to_all", 1, 2, 3),
    ("all_to_all", 3, 2, 8),
    ("all_reduce", 8, 4, 4),
    ("all_reduce", 16, 4, 6),
]
"""Kind, chunks per block, steps, rounds: Cai et al., PPoPP'21 (its all_to_all counts 8 times the chunks)."""


@pytest.mark.parametrize(("kind", "chunks", "steps", "rounds"), DGX1)
def test_table_of_the_dgx1(kind: str, chunks: int, steps: int, rounds: int) -> None:
    topology = parse("dgx1")
    schedule = solve_exactly(topology, Collective.make(kind, 8, chunks), steps, rounds, Budget())
    assert len(schedule.rounds) == steps
    assert schedule.rounds.sum() <= rounds
    assert schedule.steps <= steps
    assert schedule.bounds is not None
    replay(schedule)


@pytest.mark.parametrize(
    ("name", "kind", "points"),
    [
        ("dgx1", "gather", [(6, 2, 7)]),
        ("dgx1", "all_to_all", [(24, 2, 8)]),
        ("dgx-a100:1", "all_gather", [(1, 1, 7)]),
        ("ring:4", "all_gather", [(2, 2, 3)]),
        ("ring:5", "all_gather", [(1, 2, 2)]),
        ("mesh:3", "all_gather", [(1, 2, 2)]),
        ("ring:1", "all_reduce", [(1, 0, 0)]),
    ],
)
def test_frontiers_that_meet_both_bounds(name: str, kind: str, points: list[tuple[int, int, int]]) -> None:
    topology = parse(name)
    found = list(pareto(topology, Collective.make(kind, topology.ranks), Budget()))
    assert [(point.chunks, point.steps, point.rounds) for point in found] == points
    assert gap_of(found[-1].schedule) in (0, None)
    for point in found:
        replay(point.schedule)


def test_a_frontier_trades_steps_for_bandwidth_with_proofs() -> None:
    """One root of a line of four: each finer cut that pipelines better needs another step."""
    points = []
    for point in pareto(parse("mesh:4"), Collective.make("broadcast", 4), Budget()):
        points.append(point)
        if len(points) == 3:
            break
    assert [point.steps for point in points] == [3, 4, 5]
    gaps = [gap_of(point.schedule) for point in points]
    assert gaps == sorted(gaps, reverse=True)
    assert len(set(gaps)) == 3
    assert all(point.optimal for point in points)
    assert all("no smaller R/C in " in point.schedule.proof for point in points)


@pytest.mark.parametrize(
    ("kind", "chunks", "steps", "rounds", "sentence"),
    [
        ("all_gather", 1, 1, 1, r"data must travel 2 steps \(distance bound\)"),
        ("all_gather", 2, 2, 2, "the throughput bound needs 3 rounds"),
        ("all_gather", 3, 2, 4, "2 steps take at least 5 rounds, proven by linear programming"),
        ("all_gather", 1, 3, 2, "at least 1 step, and 1 round per step"),
        ("all_reduce", 8, 1, 2, "needs at least 2 steps"),
    ],
)
def test_impossible_instances_are_told(kind: str, chunks: int, steps: int, rounds: int, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        solve_exactly(parse("dgx1"), Collective.make(kind, 8, chunks), steps, rounds, Budget())


def test_the_time_limit_is_an_error_of_its_own() -> None:
    with pytest.raises(OutOfTimeError, match=r"within 0\.01 s; proven so far: 7 steps take at least 7 rounds; allow"):
        solve_exactly(parse("dgx1"), Collective.make("all_gather", 8, 6), 7, 7, Budget(0.01))


def test_symmetry_is_found_and_stored() -> None:
    schedule = solve_exactly(parse("dgx1"), Collective.make("all_gather", 8, 2), 2, 3, Budget())
    assert schedule.symmetry
    assert 4 * len(schedule.transfers) == len(expand(schedule).transfers) == 112


def synchronous_rounds(schedule: Schedule) -> list[int]:
    """Rounds per step that a schedule needs when its steps are barriers."""
    whole = expand(schedule)
    unit = round_bandwidth(whole.topology)
    rounds = [1] * whole.steps
    load: dict[tuple[int, int], int] = {}
    for row in whole.transfers.rows():
        for link in row.route:
            weight = int(whole.collective.chunks.weight[whole.values.chunk[row.value]])
            load[row.step, link] = load.get((row.step, link), 0) + weight
    for (step, link), weight in load.items():
        rounds[step] = max(rounds[step], int(-(-weight * unit // whole.topology.links[link].bandwidth)))
    return rounds


@examples(30)
@given(data=st.data())
def test_what_another_engine_finds_exists(data: st.DataObject) -> None:
    """Never unsatisfiable where the greedy engine has a schedule; and whatever comes out is right."""
    topology = data.draw(networks(4, switches=1))
    collective = data.draw(collectives(topology, 1))
    if collective.kind == "all_reduce":
        return  # Two halves with limits of their own: covered by all_gather and reduce_scatter.
    other = greedy(topology, collective, 1000, Budget())
    if not other.steps:
        return
    rounds = synchronous_rounds(other)
    schedule = solve_exactly(topology, other.collective, len(rounds), sum(rounds), Budget())
    assert schedule.rounds.sum() <= sum(rounds)
    replay(schedule)


@pytest.mark.parametrize("kind", KINDS)
def test_without_limits_the_engine_picks_a_point(kind: str) -> None:
    topology = parse("ring:4")
    small = run(topology, Collective.make(kind, 4), 1, Budget(20))
    replay(small)
    assert small.bounds is not None
    if kind != "all_reduce":
        assert len(small.rounds) == small.bounds.latency.steps


def test_questions_passed_over_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point found after a question was left open says which, and that nearly equal ratios were skipped; without a
    patience an open question is an error."""
    topology, collective = parse("dgx1"), Collective.make("all_gather", 8)
    assert "not decided" not in next(pareto(topology, collective, Budget(), patience=60)).schedule.proof
    asked: list[tuple[int, int, int]] = []
    solve = frontier.spread

    def impatient(topology: Topology, collective: Collective, steps: int, rounds: int, *more: Any) -> Schedule:
        asked.append((chunk_count(collective), steps, rounds))
        if 2 * rounds == 3 * chunk_count(collective):
            raise OutOfTimeError("too hard")
        return solve(topology, collective, steps, rounds, *more)

    monkeypatch.setattr(frontier, "spread", impatient)
    point = next(pareto(topology, collective, Budget(), patience=60))
    assert asked == [(2, 2, 3), (5, 2, 8)]
    assert (point.ratio, point.optimal) == (Fraction(8, 5), False)
    told = "R/C >= 3/2 in 2 steps (linear bound); not decided in time: (C, S, R) = (2, 2, 3), and 2 others"
    assert told in point.schedule.proof
    with pytest.raises(OutOfTimeError, match=r"too hard \(proven so far: R/C >= 3/2 in 2 steps\)"):
        next(pareto(topology, collective, Budget()))


def test_empty_steps_fall_away() -> None:
    schedule = solve_exactly(parse("full:2"), Collective.make("all_gather", 2), 5, 5, Budget())
    assert len(schedule.rounds) == schedule.steps == 1
    replay(schedule)


def test_proofs_say_what_they_are_limited_to() -> None:
    """Reduce-scatter then all-gather is one form among others; its frontier joins those of the halves."""
    points = list(pareto(parse("dgx1"), Collective.make("all_reduce", 8), Budget()))
    assert [(point.chunks, point.steps, point.rounds) for point in points] == [(16, 4, 6), (48, 5, 16), (48, 6, 14)]
    for point in points:
        assert point.optimal
        assert "reduce_scatter then all_gather, other forms are not ruled out" in points[0].schedule.proof
        assert f"no two halves of {point.steps} steps have a smaller R/C" in point.schedule.proof
        replay(point.schedule)


def test_all_reduce_divides_its_steps_as_it_must() -> None:
    """(48, 5, 16) needs 9 rounds in 2 steps and 7 in 3; with 15 rounds there is no division at all."""
    collective = Collective.make("all_reduce", 8, 48)
    replay(solve_exactly(parse("dgx1"), collective, 5, 16, Budget()))
    with pytest.raises(EngineError, match="proven for every division into a reduce_scatter and an all_gather"):
        solve_exactly(parse("dgx1"), collective, 5, 15, Budget())


def test_fewest_rounds_for_given_steps() -> None:
    schedule = run(parse("dgx1"), Collective.make("all_gather", 8, 2), 1, Budget(30, steps=2))
    assert np.array_equal(sorted(schedule.rounds), [1, 2])
    with pytest.raises(EngineError, match="--rounds needs --steps: give both, or neither"):
        run(parse("dgx1"), Collective.make("all_gather", 8), 1, Budget(1, rounds=2))


def test_a_frontier_without_end_stops_in_time() -> None:
    """A broadcast only comes nearer to its bound; after the finest cut there is nothing new, and time ends the walk."""
    points = []
    with pytest.raises(OutOfTimeError, match=r"walked up to \d+ steps in 3 s|did not decide"):
        points += list(pareto(parse("ring:3"), Collective.make("broadcast", 3), Budget(3)))


def test_too_large_is_not_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MAX_SENDS", 100)
    with pytest.raises(
        UndecidedError, match=r"is too large for engine sccl; .* \(proven so far: R/C >= 3/2 in 2 steps\)"
    ):
        next(pareto(parse("dgx1"), Collective.make("all_gather", 8), Budget(), patience=10))

"""Two solvers that share no encoding agree; symmetry and the linear bound never rule out what exists."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.sccl import step_cp_sat, step_flow, step_z3
from syntony.synth.engines.sccl.exact import solve_exactly
from syntony.synth.engines.sccl.step_bound import least_rounds
from syntony.synth.engines.sccl.step_problem import Instance, RouteAction
from syntony.synth.engines.sccl.step_symmetry import chain, fitting, listed
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.networks import collectives, networks, replay


def instance_of(topology: Topology, collective: Collective, steps: int, rounds: int) -> Instance:
    """Over the shortest routes."""
    network = Network(topology, collective)
    return Instance(network, routes_of(network).routes, steps, rounds)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Small ones of collectives that sum nothing, with uneven chunks, about as many feasible as not."""
    topology = draw(networks(4, switches=1))
    collective = draw(collectives(topology, 2))
    assume(not collective.combining and collective.ranks > 1)
    steps = draw(st.integers(1, 4))
    return instance_of(topology, collective, steps, steps + draw(st.integers(0, 6)))


@examples(80)
@given(instance=instances())
def test_the_solvers_agree(instance: Instance) -> None:
    """z3, CP-SAT on Booleans and CP-SAT on flows say the same; and where there is a schedule, the bound allows it."""
    answers = [bool(step_z3.solve(instance, 60)), bool(step_cp_sat.solve(instance, 60))]
    if step_flow.applies(instance):
        answers.append(bool(step_flow.solve(instance, 60)))
    assert len(set(answers)) == 1
    if answers[0]:
        assert least_rounds(instance.network, instance.routes, instance.steps, 60) <= instance.rounds


@examples(25)
@given(
    name=st.sampled_from(["ring:4", "ring:5", "full:4", "mesh:2x2", "star:3", "ring:3"]),
    kind=st.sampled_from(["all_gather", "reduce_scatter", "all_to_all", "gather", "reduce", "broadcast"]),
    chunks=st.integers(1, 2),
    steps=st.integers(1, 3),
    spare=st.integers(0, 3),
)
def test_the_engine_agrees_with_its_second_opinion(name: str, kind: str, chunks: int, steps: int, spare: int) -> None:
    """The whole road of both: symmetries, bounds, duals."""
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks, chunks)
    found = []
    for solver in ("CP-SAT", "z3"):
        try:
            schedule = solve_exactly(topology, collective, steps, steps + spare, Budget(60), solver)
        except EngineError:
            found.append(False)
        else:
            replay(schedule)
            found.append(True)
    assert found[0] == found[1]


def test_what_only_an_uneven_schedule_solves_is_found() -> None:
    """Ring of 4, mirrored through 0 and 2: a chunk from 0 to 2 must choose a side, which no mirror leaves be."""
    topology, collective = parse("ring:4"), Collective.make("broadcast", 4)
    instance = instance_of(topology, collective, 2, 2)
    groups = chain(instance.network, instance.routes)
    assert len(groups) == 2
    assert groups[-1] == []
    assert step_cp_sat.solve(instance, 60, groups[0]) is False
    assert step_z3.solve(instance, 60, groups[0]) is False
    assert isinstance(step_cp_sat.solve(instance, 60), list)
    replay(solve_exactly(topology, collective, 2, 2, Budget()))


def test_groups_of_a_chain_shrink_to_none() -> None:
    network = Network(parse("torus:4x4"), Collective.make("all_gather", 16))
    groups: list[list[RouteAction]] = chain(network, routes_of(network).routes)
    assert groups[-1] == []
    assert [len(group) for group in groups] == sorted((len(group) for group in groups), reverse=True)
    for group, smaller in pairwise(groups):
        assert smaller == group[: len(smaller)]


def test_a_root_keeps_what_leaves_it_in_place() -> None:
    """Neither generator of the ring fixes rank 3, but their product with turns does."""
    topology = parse("ring:8")
    network = Network(topology, Collective.make("broadcast", 8, root=3))
    routes = routes_of(network).routes
    kept = fitting(network, routes)
    assert [nodes[3] for nodes in kept] == [3]
    assert [nodes[4] for nodes in kept] == [2]
    assert fitting(network, routes[1:]) == []  # Its image would be a route that is not there.
    everyone = listed(8, topology.generators, 256)
    assert everyone is not None
    assert len(everyone) == 16
    assert listed(8, topology.generators, 15) is None


@pytest.mark.parametrize(
    ("name", "kind", "steps", "least"),
    [
        ("dgx1", "all_gather", 2, Fraction(3, 2)),
        ("dgx1", "all_gather", 3, Fraction(7, 6)),
        ("dgx1", "all_to_all", 2, Fraction(8, 3)),  # of 8 chunks per buffer: R/C = 1/3
        ("dgx1", "broadcast", 3, Fraction(9, 22)),
        ("dgx1", "broadcast", 5, Fraction(5, 19)),
        ("ring:8", "all_gather", 4, Fraction(7, 2)),
        ("ring:8", "broadcast", 4, Fraction(2)),
        ("ring:8", "broadcast", 5, Fraction(5, 4)),
        ("mesh:4", "broadcast", 4, Fraction(2)),
        ("dgx-a100:1", "all_gather", 1, Fraction(7)),
    ],
)
def test_fewest_rounds_by_linear_programming(name: str, kind: str, steps: int, least: Fraction) -> None:
    """A line of 4 in 4 steps: two pieces follow each other; a ring of 8 in 5: a third piece goes behind on one side."""
    topology = parse(name)
    network = Network(topology, Collective.make(kind, topology.ranks))
    assert least_rounds(network, routes_of(network).routes, steps, 60) == least


def test_the_bound_is_silent_without_time_or_room(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(parse("dgx1"), Collective.make("all_gather", 8))
    routes = routes_of(network).routes
    assert least_rounds(network, routes, 2, 0.0) == 0
    monkeypatch.setattr("syntony.synth.engines.sccl.step_bound.MAX_VARIABLES", 10)
    assert least_rounds(network, routes, 2, 60) == 0


def test_uneven_chunks_take_rounds_by_weight() -> None:
    collective = Collective.make("broadcast", 2, weights=(1, 3))
    for solve in (step_z3.solve, step_cp_sat.solve):
        assert solve(instance_of(parse("full:2"), collective, 1, 3), 10) is False
        assert isinstance(solve(instance_of(parse("full:2"), collective, 1, 4), 10), list)


def test_the_same_question_has_the_same_answer() -> None:
    instance = instance_of(parse("dgx1"), Collective.make("all_gather", 8, 3), 3, 4)
    assert step_cp_sat.solve(instance, 60) == step_cp_sat.solve(instance, 60)


def test_effort_is_a_limit_of_its_own() -> None:
    instance = instance_of(parse("dgx1"), Collective.make("all_gather", 8, 6), 3, 7)
    assert step_cp_sat.solve(instance, 60, (), 1e-6) is None

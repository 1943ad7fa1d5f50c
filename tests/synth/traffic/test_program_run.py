"""A Program on chosen paths: against the same messages as the traffic of a job, and against itself without skipping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.synth.simulation.program_simulator import Lanes, simulate_program
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.critical_path import critical_path, describe
from syntony.synth.traffic.from_files import program_messages
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.program_run import run_program
from syntony.synth.traffic.run import run
from syntony.topologies import parse
from tests.sampled import examples
from tests.synth.programs import one_sided_gather

CHOICES = ("single", "ecmp", "e-ecmp:3", "spray", "least-loaded")
FABRIC = "clos:leaves=2,hosts=4,spines=3"
BUILDERS = [(entry.name, collective) for entry in _core.algorithms() for collective in entry.collectives]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("algorithm", "collective"), [("ring", "all_reduce"), ("direct", "all_to_all")])
def test_fifos_with_room_for_everything_are_a_jobs_messages(choice: str, algorithm: str, collective: str) -> None:
    """The unrolled messages are flows of another simulator: they share only links and the choice of paths."""
    topology, size = parse(FABRIC), 8 << 20
    program = _core.build(algorithm, collective, 8)
    messages = program_messages(program, size)
    job = run(topology, [Job("a", tuple(range(8)), messages)], Choice.parse(choice, 3))
    found = run_program(program, topology, size, Choice.parse(choice, 3), int(messages.bytes.max()), fifo_depth=64)
    assert found.seconds == pytest.approx(job.seconds, rel=0.02)
    assert found.carried == pytest.approx(job.carried) or choice == "least-loaded"


@examples(40)
@given(
    st.sampled_from(BUILDERS),
    st.sampled_from(CHOICES),
    st.sampled_from((FABRIC, "star:8", "torus:2x4", "dgx1")),
    st.integers(1, 3_000_000),
    st.sampled_from((1, 2, 4)),
)
def test_every_message_starts_when_what_it_waited_for_happens(
    built: tuple[str, str], choice: str, wires: str, size: int, depth: int
) -> None:
    program, topology = _core.build(*built, 8), parse(wires)
    depth = max(depth, program.fifo_depth)
    chosen = Choice.parse(choice, size)
    lanes = Lanes.of(program, topology, size, 1 << 16, depth, chosen.ways(topology))
    times = lanes.run(every_message=True)
    held = times.cause >= 0
    happened = np.where(times.cause_left, times.left[times.cause], times.arrival[times.cause])
    assert np.array_equal(times.start[held], happened[held])
    assert not times.start[~held].any()
    parts = lanes.connections.carried(lanes.sizes.total()).sum()
    assert times.bytes.sum() == pytest.approx(parts)
    if choice != "least-loaded":  # then loads decide, and nothing is skipped
        short = simulate_program(program, topology, size, 1 << 16, depth, ways=chosen.ways(topology))
        assert short.seconds == pytest.approx(times.seconds, rel=1e-6)


def test_one_path_each_is_the_default() -> None:
    """Where there is one shortest path, a choice changes nothing: the same model, bit for bit."""
    topology = parse("star:6")
    for algorithm in ("ring", "dbt", "two_shot"):
        program = _core.build(algorithm, "all_reduce", 6)
        plain = simulate_program(program, topology, 1 << 22)
        for choice in ("single", "ecmp", "spray"):
            ways = Choice.parse(choice).ways(topology)
            assert simulate_program(program, topology, 1 << 22, ways=ways).seconds == plain.seconds
        assert run_program(program, topology, 1 << 22).seconds == pytest.approx(plain.seconds)


def test_short_fifos_hold_up_what_a_path_could_carry() -> None:
    program, topology = _core.build("dbt", "all_reduce", 8), parse(FABRIC)
    deep, short = (run_program(program, topology, 1 << 24, Choice("single"), 4096, depth) for depth in (64, 1))
    assert short.seconds > deep.seconds * 1.1


def test_the_critical_path_ends_with_what_came_last() -> None:
    program, topology = _core.build("direct", "all_to_all", 8), parse(FABRIC)
    found = run_program(program, topology, 1 << 20, Choice("single"))
    chain = critical_path(found)
    assert found.times.arrival[chain[-1]] == found.seconds
    assert found.times.start[chain[0]] == 0
    lines = describe(found)
    assert "leaf0 -> spine0" in lines[0] or "leaf1 -> spine0" in lines[0] or "spine0 -> leaf" in lines[0]
    sprayed = simulate_program(program, topology, 1 << 20, ways=Choice("spray").ways(topology)).seconds
    assert "(spray), it would take" in lines[-1]
    assert found.seconds_by(Choice("spray")) == sprayed < found.seconds
    assert found.seconds_with(found.traffic.flows.capacity * 2) < found.seconds


def test_programs_that_reach_into_the_memory_of_others() -> None:
    program, topology = one_sided_gather(), parse("star:3")
    found = run_program(program, topology, 1 << 20, Choice("single"))
    assert found.seconds == pytest.approx(simulate_program(program, topology, 1 << 20).seconds)
    messages = found.traffic.jobs[0].messages
    assert (messages.src != messages.dst).all()

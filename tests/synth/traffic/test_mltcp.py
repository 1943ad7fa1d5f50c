"""MLTCP: jobs that share a link come apart by themselves, as fast as its formula says, and lose nothing by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.mltcp import INTERCEPT, SLOPE, growing_shares, mltcp
from syntony.synth.traffic.patterns.table import pattern_messages
from syntony.synth.traffic.run import flows_of, run, simulate
from syntony.topologies import parse
from tests.synth.traffic.test_interleave import talker, wires

SINGLE = Choice("single")


@pytest.mark.parametrize("distance", [0.05, 0.2, 0.5, 0.8])
def test_two_jobs_part_as_fast_as_the_formula_says(distance: float) -> None:
    """d becomes d (intercept + slope) / (intercept + slope d) while they talk; the paper's step of the distance."""
    jobs = [talker("a", 0, 1, 1.0, 1.0, 0, 2), talker("b", 0, 1, 1.0, 1.0 + distance, 1, 2)]
    found = simulate(growing_shares(flows_of(wires(1), jobs, SINGLE)))
    first, second = (found.iterations(job)[0] for job in (0, 1))
    assert second - first == pytest.approx(distance * (INTERCEPT + SLOPE) / (INTERCEPT + SLOPE * distance), rel=0.02)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_jobs_that_begin_together_interleave_within_a_few_iterations(count: int) -> None:
    """n jobs that talk an n-th of the time take 2 - 1/n of their time alone if they share fairly: with six of them
    MLTCP gains 1.83, and its abstract says up to 2."""
    topology = parse(f"clos:leaves=2,hosts={count},spines=1,oversubscription={count}")  # all go over one cable
    messages = Messages.make(2, [0], [1], 1e9)
    jobs = [Job(f"j{n}", (n, count + n), messages, 5 * count, count - 1.0) for n in range(count)]
    plain, found = (simulated(topology, jobs, SINGLE) for simulated in (run, mltcp))
    alone = run(topology, jobs[:1], SINGLE).iteration_seconds(0)
    fair = [plain.iteration_seconds(job) for job in range(count)]
    last = [found.iterations(job)[-1] for job in range(count)]
    assert fair == pytest.approx([alone * (2 - 1 / count)] * count, rel=0.01)
    assert max(last) <= 1.02 * alone
    if count == 6:
        assert np.mean(fair) / np.mean(last) == pytest.approx(2.0, rel=0.1)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 2.0)), min_size=1, max_size=4))
def test_nobody_is_faster_than_alone_and_all_bytes_arrive(duties: list[tuple[float, float]]) -> None:
    jobs = [talker(f"j{lane}", 0, 1, talk, compute, lane, 4) for lane, (talk, compute) in enumerate(duties)]
    plain, found = (simulated(wires(1), jobs, SINGLE) for simulated in (run, mltcp))
    np.testing.assert_allclose(found.carried, plain.carried)
    for number, (talk, compute) in enumerate(duties):
        assert found.iterations(number).min() >= (talk + compute) * (1 - 1e-9)


@pytest.mark.parametrize("choice", ["single", "ecmp", "e-ecmp:3", "spray", "least-loaded"])
def test_a_job_alone_takes_the_time_that_it_takes_without(choice: str) -> None:
    """Equal shares grow alike: a ring on wires of its own is as fast as ever, however its messages are cut."""
    topology = parse("clos:leaves=2,hosts=2,spines=2")
    job = Job("ring", (0, 1, 2, 3), pattern_messages("all_reduce:ring", 4, 64e6), 3, 0.01)
    plain, found = (simulated(topology, [job], Choice.parse(choice, 1)) for simulated in (run, mltcp))
    assert found.iterations(0) == pytest.approx(plain.iterations(0), rel=1e-6)

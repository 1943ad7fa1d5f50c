"""Time shifts: jobs that can be taken apart are, and where they cannot the report says so."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.interleave import interleave
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.run import run
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology
from tests.sampled import examples

RATE = 1e9


def wires(count: int) -> Topology:
    """`count` links that jobs share: node i to node i + 1, one behind another, with ranks at every node.

    r0    r1    r2        a job from r0 to r2 uses links 0 and 1; ranks' own links are much faster
    s0 ─▶ s1 ─▶ s2
    """
    wiring = Wiring("line")
    ranks = [[wiring.rank((i, j)) for j in range(4)] for i in range(count + 1)]
    switches = [wiring.switch(f"s{i}", (i, -1)) for i in range(count + 1)]
    for i, switch in enumerate(switches):
        for rank in ranks[i]:
            wiring.cable(rank, switch, Fraction(100 * 10**9), 0.0)
    for one, other in pairwise(switches):
        wiring.cable(one, other, Fraction(10**9), 0.0)
    return wiring.topology()


def talker(name: str, src: int, dst: int, talk: float, compute: float, lane: int, iterations: int = 8) -> Job:
    """A job that computes, then talks for `talk` seconds at full rate from node src to node dst of the line."""
    messages = Messages.make(2, [0], [1], talk * RATE)
    return Job(name, (4 * src + lane, 4 * dst + lane), messages, iterations, compute)


def times(topology: Topology, jobs: Sequence[Job], interleaved: bool) -> list[float]:
    choice = Choice("single")
    shifts = interleave(topology, jobs, choice).shifts if interleaved else None
    found = run(topology, jobs, choice, shifts)
    return [found.iteration_seconds(number) for number in range(len(jobs))]


def test_two_jobs_that_talk_half_of_the_time_do_not_overlap() -> None:
    line = wires(1)
    jobs = [talker("a", 0, 1, 0.5, 0.5, 0), talker("b", 0, 1, 0.5, 0.5, 1)]
    assert times(line, jobs, interleaved=False) == pytest.approx([1.5, 1.5])  # half speed while both talk
    assert times(line, jobs, interleaved=True) == pytest.approx([1.0, 1.0])
    found = interleave(line, jobs, Choice("single"))
    assert [shift.start for shift in found.shifts] == pytest.approx([0.0, 0.5])
    (shared,) = found.links
    assert (shared.jobs, shared.excess) == ((0, 1), pytest.approx(0.0, abs=1e-9))
    assert shared.excess_before == pytest.approx(0.5)


def test_a_job_stands_in_the_middle_of_the_room_that_it_has() -> None:
    jobs = [talker("a", 0, 1, 0.2, 0.8, 0), talker("b", 0, 1, 0.2, 0.8, 1)]
    shifts = interleave(wires(1), jobs, Choice("single")).shifts
    assert shifts[1].start == pytest.approx(0.5, abs=0.01)


def test_periods_of_one_to_two() -> None:
    """On the circle of two seconds the short job talks twice; there is room beside."""
    jobs = [talker("short", 0, 1, 0.4, 0.6, 0), talker("long", 0, 1, 0.5, 1.5, 1)]
    assert times(wires(1), jobs, interleaved=True) == pytest.approx([1.0, 2.0], rel=0.01)
    plain = times(wires(1), jobs, interleaved=False)
    assert plain[0] > 1.05 or plain[1] > 2.05


def test_three_jobs_with_a_third_each() -> None:
    jobs = [talker(name, 0, 1, 0.3, 0.6, lane) for lane, name in enumerate("abc")]
    assert times(wires(1), jobs, interleaved=True) == pytest.approx([0.9] * 3, rel=1e-6)
    assert min(times(wires(1), jobs, interleaved=False)) > 1.4


def test_a_chain_of_links_has_one_shift_per_job() -> None:
    """a shares link 0 with b, b link 1 with c: c may talk together with a (CASSINI, section 4.1)."""
    jobs = [talker("a", 0, 1, 0.5, 0.5, 0), talker("b", 0, 2, 0.5, 0.5, 1), talker("c", 1, 2, 0.5, 0.5, 2)]
    assert times(wires(2), jobs, interleaved=True) == pytest.approx([1.0] * 3)
    starts = [shift.start for shift in interleave(wires(2), jobs, Choice("single")).shifts]
    assert starts == pytest.approx([0.0, 0.5, 0.0])


def test_what_cannot_be_taken_apart_is_said() -> None:
    """Three jobs, each two of them on a link of their own, each talking half of the time: two must overlap."""
    jobs = [talker("a", 0, 2, 0.5, 0.5, 0), talker("b", 0, 3, 0.5, 0.5, 1), talker("c", 1, 3, 0.5, 0.5, 2)]
    found = interleave(wires(3), jobs, Choice("single"))
    assert max(shared.excess for shared in found.links) > 0.1
    assert min(shared.excess for shared in found.links) == pytest.approx(0.0, abs=1e-9)


def test_jobs_that_share_nothing_keep_their_time() -> None:
    jobs = [talker("a", 0, 1, 0.5, 0.5, 0), talker("b", 1, 2, 0.5, 0.5, 1)]
    found = interleave(wires(2), jobs, Choice("single"))
    assert not found.links
    assert [shift.period for shift in found.shifts] == [0.0, 0.0]


@examples(30)
@given(st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 2.0)), min_size=2, max_size=4))
def test_nobody_is_ever_asked_for_more_than_before(duties: list[tuple[float, float]]) -> None:
    """Of two jobs the shift is the best of all turns, so no worse than none; and an iteration is never shorter than
    alone, nor a period shorter than its iteration."""
    jobs = [talker(f"j{lane}", 0, 1, talk, compute, lane, 3) for lane, (talk, compute) in enumerate(duties)]
    found = interleave(wires(1), jobs, Choice("single"))
    for shared in found.links:
        assert 0 <= shared.excess <= len(jobs) - 1
        if len(jobs) == 2:
            assert shared.excess <= shared.excess_before + 1e-9
    for (talk, compute), took, shift in zip(duties, times(wires(1), jobs, interleaved=True), found.shifts, strict=True):
        assert took >= (talk + compute) * (1 - 1e-9)
        assert shift.period == 0 or talk + compute <= shift.period * (1 + 1e-9)
        assert shift.period <= (talk + compute) * 1.25

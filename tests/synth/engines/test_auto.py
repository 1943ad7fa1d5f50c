"""Engine auto and portfolios: what is kept is the fastest, and when time is up the best so far is the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextvars import copy_context
from fractions import Fraction
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.base.deadline import CLOCK
from syntony.base.files.fields import FileError
from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.checker import check_schedule
from syntony.synth.engines import workers
from syntony.synth.engines.auto import (
    CANDIDATES,
    CLOSE,
    Candidate,
    Found,
    Resumed,
    _Agenda,
    attempts,
    candidates,
    run,
    seconds_at,
)
from syntony.synth.engines.engine import Budget, EngineError, SlowerError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.slicing import in_slices
from syntony.synth.engines.portfolio import EXACT, KEEP, Entry, Portfolio, portfolio
from syntony.synth.engines.registry import engine_named
from syntony.synth.engines.workers import Cutting, Question, Refused, Workers, busiest
from syntony.synth.formats import portfolio_file
from syntony.synth.formats.loading import read, verify
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation import long_messages
from syntony.synth.simulation.long_messages import Estimate, estimate
from syntony.synth.simulation.result import Simulation
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import MOST_MESSAGES
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples


@pytest.fixture(scope="module")
def small() -> tuple[Topology, Collective]:
    topology = random_network(0)
    return topology, Collective.make("reduce_scatter", topology.ranks)


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [("ring:5", "all_gather", 1 << 20), ("mesh:3x3", "all_reduce", 1 << 28), ("ring:4", "scatter", 64)],
)
def test_the_fastest_is_kept_and_compared_aloud(name: str, kind: str, size: int) -> None:
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks)
    found = list(candidates(topology, collective, size, Budget(4)))
    best = run(topology, collective, size, Budget(4))
    assert best.bounds is not None
    enough = CLOSE * best.bounds.seconds(size)  # what ends a search; the other one may have ended nearer to the bounds
    assert seconds_at(best, size) <= max(min(one.seconds for one in found) * 1.001, enough)
    prompt = found[0].engine  # asked first, whatever the time is; who else answers depends on the machine's load
    assert f"{prompt} " in best.proof or best.engine == prompt
    assert check_schedule(best)


def test_it_stops_at_the_bound() -> None:
    """Forest meets the bound on a torus at 1 GB, so nobody else is asked."""
    found = list(candidates(parse("torus:4x4"), Collective.make("all_gather", 16), 1 << 30, Budget()))
    assert [one.engine for one in found] == ["forest"]


def test_time_that_is_up_leaves_the_first_answer() -> None:
    topology, collective = parse("dgx1"), Collective.make("all_gather", 8)
    assert [one.engine for one in candidates(topology, collective, 1 << 10, Budget(1e-9))] == ["forest"]


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_large_networks_do_not_depend_on_one_engine(kind: str) -> None:
    """One that needs all of the time would leave no answer; exact trees of one root are packed without a search."""
    many = parse("rail:boxes=128,gpus=8,rails=8")
    able = {one.engine for one in CANDIDATES if one.worth(many, Collective.make(kind, many.ranks))}
    assert {"forest", "hierarchy"} <= able
    some = parse("rail:boxes=32,gpus=8,rails=8,bandwidth=200GB/s")
    assert gap_of(forest.run(some, Collective.make(kind, some.ranks), 1 << 30, Budget())) == 0


@pytest.mark.parametrize(("size", "early"), [(16 << 10, True), (1 << 30, False)])
def test_where_latency_matters_two_slow_engines_work_at_once(
    small: tuple[Topology, Collective], size: int, early: bool
) -> None:
    """The second one waits for the quick ones before it and for cuts of theirs, not for the others; elsewhere, for all
    quick ones."""
    topology, collective = small
    able = [one for one in CANDIDATES if one.worth(topology, collective) and one.engine != "in_network"]
    schedule = forest.run(topology, collective, size, Budget())
    agenda = _Agenda(topology, collective, size, Budget(60), able)
    slow = agenda.beside(2)
    assert slow is not None
    assert slow.engine == "pipeline"
    prompt: list[str] = []
    for question in agenda.prompt():
        agenda.hear(Found(question.engine, schedule, 20.0 if question.engine == "bfb" else 2.0 + len(prompt) / 100))
        prompt.append(question.engine)
    assert ("greedy" in prompt) == early  # its crossing messages wait for something faster to be known
    asked: list[tuple[str, bool]] = []
    while (question := agenda.next([slow], 2)) and len(asked) < 20:
        asked.append((question.engine, isinstance(question, Cutting)))
        if not isinstance(question, Cutting):
            agenda.hear(Found(question.engine, schedule, 2.0 + len(asked) / 200))
    assert asked.index(("hierarchy", False)) < asked.index(("teccl", False))
    before = {engine for engine, cutting in asked[: asked.index(("teccl", False))] if cutting}
    assert before >= {"forest", "greedy", "hierarchy"}
    assert ("blink" in before) != early
    assert ("blink", False) in asked[: asked.index(("teccl", False))] or early
    assert "bfb" not in before  # far too slow


def test_what_a_slow_engine_reports_is_cut(small: tuple[Topology, Collective]) -> None:
    """Before its end once nothing else waits, so that its time does not run out first; but each result once."""
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), [Candidate("teccl", lambda *_: True, "long")])
    slow = agenda.beside(2)
    assert slow is not None
    agenda.hear(Found("teccl", schedule, 2.0))
    agenda.hear(Found("forest", schedule, 3.0))
    cutting = [agenda.next([slow], 2) for _ in range(3)]
    assert [isinstance(one, Cutting) and one.engine for one in cutting] == ["forest", "teccl", False]
    agenda.hear(Found("teccl", schedule, 1.5, cut=True))
    agenda.hear(Found("teccl", schedule, 2.0))  # at its end, the same again
    assert agenda.next([], 2) is None
    agenda.hear(Found("teccl", schedule, 1.9))
    assert agenda.next([], 2) is not None


def test_what_promises_most_is_cut_first(small: tuple[Topology, Collective]) -> None:
    """Though it is far slower before: also ahead of a slow engine that has not begun."""
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), [Candidate("teccl", lambda *_: True, "long")])
    agenda.hear(Found("greedy", schedule, 2.0, promise=1.9))
    agenda.hear(Found("forest", schedule, 8.0, promise=1.2))
    agenda.hear(Found("bfb", schedule, 2.1, promise=3.0))  # two links may be busy at once
    agenda.hear(Found("hierarchy", schedule, 9.0, promise=2.3))
    asked = [agenda.next([], 2) for _ in range(5)]
    cut = [(one.engine, isinstance(one, Cutting)) for one in asked if isinstance(one, (Cutting, Question))]
    assert cut == [("forest", True), ("greedy", True), ("bfb", True), ("teccl", False), ("hierarchy", True)]


def test_cuts_come_near_to_what_is_promised() -> None:
    """Trees that wait for whole chunks take thrice as long on this network; other trees promise little, and keep it."""
    topology, size = random_network(5), 1 << 20
    collective = Collective.make("all_reduce", topology.ranks)
    gains = {}
    for engine in ("forest", "greedy"):
        told = Question(engine, topology, collective, size, 60.0).answers()
        whole, *cut = [one for one in told if isinstance(one, Found)]
        assert 0.95 * whole.hoped <= cut[-1].seconds <= 1.05 * whole.hoped
        gains[engine] = whole.seconds / whole.hoped
    assert gains["forest"] > 3 > 2 > gains["greedy"]


def test_what_another_engine_found_is_not_cut_twice(small: tuple[Topology, Collective]) -> None:
    """A slow engine tries the results of quick ones: it does not lead by them, so a better slow one goes on first."""
    topology, collective = small
    known = forest.run(topology, collective, 1 << 20, Budget())
    other = in_slices(known, 2)
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl")]
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), slow)
    assert [agenda._slow_question().engine for _ in slow] == ["pipeline", "teccl"]
    agenda.hear(Found("forest", known, 2.0))
    agenda.hear(Found("pipeline", other, 2.1))
    agenda.hear(Found("teccl", known, 1.9999))  # as a rougher simulation says
    assert agenda._leader_again({"pipeline": 1.0, "teccl": 1.0}, ()) == Resumed("pipeline")
    asked = [agenda._cut(set()) for _ in range(3)]
    assert [one and one.engine for one in asked] == ["forest", "pipeline", None]


def test_what_an_engine_chose_in_the_end_is_cut_though_it_is_slower_before(small: tuple[Topology, Collective]) -> None:
    """Its larger number of chunks may be what makes cuts fast."""
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), [])
    for seconds in (2.0, 2.1, 2.1):
        agenda.hear(Found("sccl", schedule, seconds))
    asked = [agenda.next([], 2) for _ in range(3)]
    assert [one.found.seconds if isinstance(one, Cutting) else None for one in asked] == [2.0, 2.1, None]


def test_near_cuts_go_on_as_long_as_they_become_faster(small: tuple[Topology, Collective]) -> None:
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    names = [Candidate(engine, lambda *_: True) for engine in ("forest", "hierarchy")]
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), names)
    agenda.hear(Found("forest", schedule, 2.0))
    agenda.hear(Found("hierarchy", schedule, 2.4))
    cuts = [cut for cut in (agenda._cut(()), agenda._cut(())) if cut]
    leader, other = (cut.name for cut in cuts)
    assert [cut.engine for cut in cuts] == ["forest", "hierarchy"]
    question = agenda.next([], 1, {other: 15.0})  # far behind
    assert isinstance(question, Question)
    agenda.hear(Found("hierarchy", schedule, 2.1, cut=True))
    assert agenda.next([], 1, {other: 15.0}) == Resumed(other)
    assert agenda.next([], 1, {leader: 15.0, other: 30.0}) == Resumed(leader)
    assert isinstance(agenda.next([], 1, {other: 30.0}), Question)  # its last turn gained nothing


def test_near_cuts_do_not_go_on_before_all_slow_engines_have_begun(small: tuple[Topology, Collective]) -> None:
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl")]
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), slow)
    first = agenda.beside(2)
    assert first is not None
    agenda.hear(Found("forest", schedule, 2.0))
    cut = agenda.next([first], 2)
    assert isinstance(cut, Cutting)
    agenda.hear(Found("forest", schedule, 1.9, cut=True))
    assert agenda.next([first], 2, {cut.name: 1.0}) == Resumed(cut.name)  # it leads
    agenda.hear(Found("pipeline", schedule, 1.8))
    agenda.hear(Found("forest", schedule, 1.85, cut=True))
    second = agenda.next([first], 2, {cut.name: 2.0})
    assert isinstance(second, Question)
    assert second.engine == "teccl"
    assert agenda.next([first], 2, {cut.name: 2.0}) == Resumed(cut.name)


def test_slow_engines_take_turns(small: tuple[Topology, Collective]) -> None:
    """The best of them goes on; else the next begins; else the one that took the least goes on, after near results are
    cut."""
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl", "sccl")]
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), slow)
    first = agenda.beside(2)
    assert first is not None
    assert 0 < agenda.turn(first) < 60
    second = agenda.next([first], 2)
    assert isinstance(second, Question)
    assert second.engine == "teccl"
    agenda.hear(Found("teccl", schedule, 2.0))
    agenda.hear(Found("pipeline", schedule, 5.0))
    assert agenda.next([first], 2, {"teccl": 1.0}) == Resumed("teccl")
    cut = agenda.next([second], 2, {"pipeline": 1.0})  # begun before
    assert isinstance(cut, Question)
    assert cut.engine == "sccl"
    agenda.hear(Found("sccl", schedule, 2.1))
    cut = agenda.next([second], 2, {"pipeline": 2.0, "sccl": 1.0})
    assert isinstance(cut, Cutting)
    assert cut.engine == "sccl"
    assert 0 < agenda.turn(cut) < 60
    assert isinstance(agenda.next([second], 2, {"pipeline": 2.0, "sccl": 1.0}), Cutting)  # of pipeline
    assert isinstance(agenda.next([second], 2, {"pipeline": 2.0, "sccl": 1.0}), Cutting)  # of teccl, which is at work
    assert agenda.next([second], 2, {"pipeline": 2.0, "sccl": 1.0}) == Resumed("sccl")
    assert agenda.next([second], 2, {"pipeline": 2.0, cut.name: 1.0}) == Resumed(cut.name)
    agenda.hear(Found("sccl", schedule, 1.9, cut=True))
    assert agenda.next([second], 2, {cut.name: 30.0, "sccl": 1.0}) == Resumed(cut.name)  # it leads
    assert agenda.next([], 2, {"pipeline": 1.0, "teccl": 2.0}) == Resumed("teccl")  # sccl, the best, has ended


@pytest.mark.parametrize(("now", "begins"), [(3.0, True), (3.8, False)])
def test_no_engine_begins_just_before_the_end(small: tuple[Topology, Collective], now: float, begins: bool) -> None:
    """What is paused may be about to answer."""
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl")]

    def counted() -> tuple[object, object]:
        CLOCK.set(lambda: 0.0)
        agenda = _Agenda(*small, 1 << 20, Budget(4.0), slow)
        agenda.beside(2)
        CLOCK.set(lambda: now)
        return agenda.next([], 2, {"pipeline": 1.9}), agenda.next([], 2)

    one, nobody_rests = copy_context().run(counted)
    assert isinstance(one, Question) if begins else one == Resumed("pipeline")
    assert isinstance(nobody_rests, Question) != begins  # else it has begun already


@pytest.mark.parametrize("engine", ["pipeline", "teccl"])
def test_an_engine_that_cuts_heeds_how_many_chunks_there_may_be(engine: str) -> None:
    topology, collective = parse("mesh:2x3"), Collective.make("broadcast", 6)
    fewest = 1 << 20
    for most in (None, 12):
        told: list[Schedule] = []
        budget = Budget(chunks=most, better=told.append)
        schedule = engine_named(engine).run(topology, collective, 1 << 20, budget)
        assert all(len(one.collective.chunks) <= (most or 1 << 20) for one in [*told, schedule])
        assert len(schedule.collective.chunks) <= fewest
        fewest = len(schedule.collective.chunks)


def test_auto_returns_no_more_chunks_than_asked_for(small: tuple[Topology, Collective]) -> None:
    topology, collective = small
    many = forest.run(topology, collective, 1 << 20, Budget())
    most = len(many.collective.chunks)
    found = list(candidates(topology, collective, 1 << 20, Budget(20.0, chunks=most)))
    assert "forest" in [one.engine for one in found]
    assert all(len(one.schedule.collective.chunks) <= most for one in found)
    answers = list(attempts(topology, collective, 1 << 20, Budget(20.0, chunks=most - 1)))
    assert [one.engine for one in answers if isinstance(one, Refused)].count("forest") == 1
    assert all(len(one.schedule.collective.chunks) < most for one in answers if isinstance(one, Found))


def test_no_turn_ends_just_before_the_end(small: tuple[Topology, Collective]) -> None:
    """Whoever is paused then gets nowhere."""

    def counted() -> list[float]:
        CLOCK.set(iter((0.0, 0.0, 2.4, 2.6, 3.5)).__next__)
        agenda = _Agenda(*small, 1 << 20, Budget(4.0), [])
        return [agenda.turn(Resumed("pipeline")) for _ in range(4)]

    assert copy_context().run(counted) == pytest.approx([1.0, 1.0, 1.45, 0.55])


@pytest.mark.parametrize(("size", "startups"), [(16 << 10, True), (1 << 30, False)])
def test_a_leader_that_another_is_near_waits_where_latency_matters(
    small: tuple[Topology, Collective], size: int, startups: bool
) -> None:
    """Until all slow engines have begun."""
    topology, collective = small
    schedule = forest.run(topology, collective, size, Budget())
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl", "sccl")]
    agenda = _Agenda(topology, collective, size, Budget(60), slow)
    pipeline = agenda.beside(2)
    assert pipeline is not None
    assert pipeline.seconds == pytest.approx(60, abs=1)  # all that is left
    agenda.hear(Found("pipeline", schedule, 2.0, cut=True))
    assert agenda.next([], 2, {"pipeline": 1.0}) == Resumed("pipeline")
    agenda.hear(Found("forest", schedule, 2.1, cut=True))
    assert (agenda.next([], 2, {"pipeline": 1.0}) == Resumed("pipeline")) == (not startups)
    begun = [agenda.next([], 2, {}) for _ in range(1 if startups else 2)]
    assert [one.engine for one in begun if isinstance(one, Question)] == ["teccl", "sccl"][startups:]
    assert agenda.next([], 2, {"pipeline": 1.0, "teccl": 0.5}) == Resumed("pipeline")


def test_a_slow_engine_begins_before_the_quick_ones(small: tuple[Topology, Collective]) -> None:
    """It works while they are asked in this process."""
    asked: list[str] = []

    class Noted(Workers):
        def ask(self, question: Question | Cutting, turn: float = 0.0) -> None:
            asked.append(question.engine)

    with Noted(2) as workers:
        first = next(attempts(*small, 1 << 20, Budget(60), workers=workers))
    assert (first.engine, asked) == ("forest", ["pipeline"])


@pytest.mark.parametrize("kind", ["all_gather", "scatter", "all_reduce"])
def test_no_simulation_is_faster_than_the_busiest_link(kind: str) -> None:
    """Whole, cut, or with steps that another engine meant as barriers."""
    topology = parse("dgx1")
    collective = Collective.make(kind, topology.ranks)
    for engine in ("greedy", "flow" if kind == "scatter" else "forest", "teccl"):
        schedule = engine_named(engine).run(topology, collective, 1 << 24, Budget(3))
        assert busiest(schedule, 1 << 24) <= seconds_at(schedule, 1 << 24) * (1 + 1e-9)
    exact = run(topology, collective, 1 << 24, Budget(60, steps=4 if kind == "all_reduce" else 2))
    assert len(exact.rounds)
    assert busiest(exact, 1 << 24) <= seconds_at(exact, 1 << 24) * (1 + 1e-9)


def test_an_estimate_is_no_less_than_the_bounds() -> None:
    """Of a tebibyte only a part is simulated; the rest is on a line, which may lie a little too low."""
    wiring = Wiring("two leaves")
    for rank in range(6):
        wiring.rank((rank, 0))
    leaves = [wiring.switch(f"leaf{number}", (number, 1)) for number in range(2)]
    for rank, rate in enumerate((24371234567, 3100000007, 12345678901, 9999999967, 11111111113, 7654321987)):
        wiring.cable(rank, leaves[rank // 3], Fraction(rate), 1e-6 * (1 + rank))
    wiring.cable(*leaves, Fraction(31234567891), 4e-6)
    topology = wiring.topology()
    schedule = engine_named("blink").run(topology, Collective.make("all_reduce", 6), 1 << 40, Budget())
    assert schedule.bounds is not None
    least = schedule.bounds.seconds(1 << 40)
    assert estimate(schedule, 1 << 40, 1 << 17).seconds < least <= seconds_at(schedule, 1 << 40)


def test_what_cannot_be_faster_is_neither_simulated_nor_cut(
    small: tuple[Topology, Collective], monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, collective = small
    size = 1 << 26
    schedule = forest.run(topology, collective, size, Budget())
    least = busiest(schedule, size)

    def question(beat: float) -> Question:
        return Question("forest", topology, collective, size, 60.0, cuts=False, beat=beat)

    assert [type(one) for one in question(least * 1.01).answers()] == [Found]
    monkeypatch.setattr(workers, "seconds_at", lambda *_: pytest.fail("it was simulated"))
    (refused,) = question(least).answers()
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, SlowerError)
    agenda = _Agenda(topology, collective, size, Budget(60), [])
    agenda.hear(Found("forest", schedule, least * 1.5))
    agenda.hear(Found("greedy", schedule, least * 1.01))
    assert [isinstance(agenda.next([], 2), Cutting) for _ in range(3)] == [True, True, False]
    agenda.hear(Found("teccl", schedule, least))
    assert agenda.next([], 2) is None
    agenda = _Agenda(topology, collective, size, Budget(60), [])
    agenda.hear(Found("forest", schedule, least * 1.5))
    agenda.hear(Found("greedy", schedule, least, cut=True))  # before the first one's turn
    assert agenda.next([], 2) is None
    assert not list(Cutting(Found("forest", schedule, least * 1.0005), size, 60.0).answers())


def test_what_is_slower_than_the_best_is_simulated_roughly_and_what_is_near_the_bound_surely(
    small: tuple[Topology, Collective], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 34
    schedule = forest.run(*small, size, Budget())
    assert schedule.bounds is not None
    bound = schedule.bounds.seconds(size)
    asked: list[int] = []
    seconds, error, sure = 2 * bound, 0.04, 2 * bound

    def noted(_: Schedule, __: int, most: int) -> Estimate:
        asked.append(most)
        return Estimate(sure if most == workers.SURE else seconds, error, 1.1 * seconds)

    def simulated(beat: float) -> list[int]:
        asked.clear()
        assert seconds_at(schedule, size, beat) == told
        return asked.copy()

    monkeypatch.setattr(workers, "estimate", noted)
    told = seconds
    assert simulated(beat=1.9 * bound) == [workers.ROUGH]
    assert simulated(beat=1.95 * bound) == [workers.ROUGH, MOST_MESSAGES]
    assert simulated(beat=float("inf")) == [MOST_MESSAGES]
    seconds, sure = 1.001 * bound, 1.06 * bound
    told = sure
    assert simulated(beat=2 * bound) == [workers.ROUGH, MOST_MESSAGES, workers.SURE]
    sure = 1.002 * bound
    told = 1.1 * seconds  # it is still not sure
    assert simulated(beat=2 * bound) == [workers.ROUGH, MOST_MESSAGES, workers.SURE]
    error, told = 0.0, seconds
    assert simulated(beat=2 * bound) == [workers.ROUGH]


def test_what_is_cut_already_is_not_cut_again_to_be_compared(
    small: tuple[Topology, Collective], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many messages follow each other on a lane, whole ones tell as much."""
    size = 1 << 30
    cut = in_slices(forest.run(*small, size, Budget()), 64)
    lengths: list[int] = []

    def noted(schedule: Schedule, size: int, length: int) -> Simulation:
        lengths.append(length)
        return simulate(schedule, size, length)

    seconds = seconds_at(cut, size)
    monkeypatch.setattr(long_messages, "simulate", noted)
    assert seconds_at(cut, size, most=1) == pytest.approx(seconds, rel=0.02)
    assert len(lengths) == 1
    assert lengths[0] >= cut.collective.bytes_of_chunks(size).max()


def test_answers_that_have_arrived_count_when_time_is_up(small: tuple[Topology, Collective]) -> None:
    """An engine in this process may take longer than the time; what workers found meanwhile is not lost."""
    topology, collective = small
    early = Found("pipeline", forest.run(topology, collective, 1 << 20, Budget()), 1e-4)

    class Told(Workers):
        def arrived(self) -> Iterator[Found | Refused]:
            yield early

    with Told(2) as workers:
        found = list(attempts(topology, collective, 1 << 20, Budget(1e-9), workers=workers))
    assert [one.engine for one in found] == ["forest", "pipeline"]
    with Workers(1) as workers:
        workers.ask(Question("forest", topology, collective, 1 << 20, 60.0, cuts=False))
        assert wait(list(workers._asked), 60.0)
        assert [one.engine for one in workers.arrived()] == ["forest"]


@pytest.mark.parametrize("name", ["pipeline", "teccl"])
@pytest.mark.parametrize("kind", ["reduce_scatter", "broadcast", "all_reduce"])
def test_what_a_search_reports_before_its_end_is_proven(name: str, kind: str) -> None:
    """Its bounds, too: it may be the answer if time is up."""
    topology = random_network(0)
    told: list[Schedule] = []
    budget = Budget(3, better=told.append)
    engine_named(name).run(topology, Collective.make(kind, topology.ranks), 1 << 20, budget)
    assert told
    for schedule in told:
        assert check_schedule(schedule), check_schedule(schedule).fault
        assert schedule.engine == name


def test_steps_ask_the_exact_engine() -> None:
    found = run(parse("dgx1"), Collective.make("all_gather", 8), 1 << 10, Budget(60, steps=2))
    assert (found.engine, found.steps) == ("sccl", 2)


def test_switches_take_part_only_when_asked() -> None:
    topology, collective = parse("dgx-h100:1"), Collective.make("all_reduce", 8)
    assert not run(topology, collective, 1 << 30, Budget(4)).in_network
    assert run(topology, collective, 1 << 30, Budget(4), argument="in_network").in_network
    with pytest.raises(EngineError, match="takes the argument in_network or none, not 'switches'"):
        run(topology, collective, 1 << 30, Budget(4), argument="switches")


# portfolios -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_a_mesh() -> Portfolio:
    return portfolio(parse("mesh:3x3"), Collective.make("all_reduce", 9), 1 << 8, 1 << 26, Budget(3))


@examples(30)
@given(power=st.integers(8, 26))
def test_no_entry_is_beaten_by_another(of_a_mesh: Portfolio, power: int) -> None:
    """At the sizes that were simulated, within the turn's tolerance."""
    best = min(seconds_at(entry.schedule, 1 << power) for entry in of_a_mesh.entries)
    assert seconds_at(of_a_mesh.at(1 << power), 1 << power) <= KEEP * best * 1.0001


def test_turns_are_where_they_cross(of_a_mesh: Portfolio) -> None:
    """A little behind its last size, a schedule is no longer good enough: its turn ended no earlier than it had to."""
    assert len(of_a_mesh.entries) > 1

    def good(schedule: Schedule, size: int) -> bool:
        return seconds_at(schedule, size) <= min(seconds_at(one.schedule, size) for one in of_a_mesh.entries)

    for entry in of_a_mesh.entries[:-1]:
        assert entry.last is not None
        reach = max(1, round(entry.last * (EXACT - 1)))
        assert not all(good(entry.schedule, entry.last + 1 + reach * part // 20) for part in range(21))


def test_a_portfolio_is_read_as_it_was_written(of_a_mesh: Portfolio, tmp_path: Path) -> None:
    paths = portfolio_file.write(of_a_mesh, tmp_path / "p.json")
    assert len(paths) == 1 + len(of_a_mesh.entries)
    content = read(paths[0]).content
    assert isinstance(content, Portfolio)
    assert content == of_a_mesh
    assert verify(paths[0])
    assert main(["simulate", str(paths[0]), "--size", "1K"]) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "version is 2; this program reads version 1"),
        ({"topology": "torus:3x3"}, "it is said to be for all_reduce on torus:3x3; its schedules are for"),
        ({"entries": []}, "a portfolio has at least one schedule"),
        ({"more": 1}, 'has the unknown key "more"'),
        ({("entries", 0, "hash"): "0"}, "p.0.json is another schedule"),
        ({("entries", 0, "file"): "../p.0.json"}, "it must be the name of a file in the same folder"),
        ({("entries", 0, "last"): None}, "sizes must ascend and its last entry have no end"),
        ({("entries", 0, "last"): "many"}, "it must be the last size in bytes, or null"),
        ({("entries", 0, "engine"): "magic"}, "p.0.json is by engine"),
    ],
)
def test_a_wrong_portfolio_is_refused(
    of_a_mesh: Portfolio, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    path = portfolio_file.write(of_a_mesh, tmp_path / "p.json")[0]
    document = json.loads(path.read_text())
    for place, value in change.items():
        if isinstance(place, tuple):
            _, number, key = place
            document["entries"][number][key] = value
        else:
            document[place] = value
    path.write_text(json.dumps(document))
    with pytest.raises(FileError, match=r"p\.json") as told:
        read(path)
    assert sentence in str(told.value)


def test_schedules_of_one_portfolio_are_alike(of_a_mesh: Portfolio) -> None:
    other: Schedule = run(parse("mesh:3x3"), Collective.make("all_gather", 9), 1 << 10, Budget(10))
    with pytest.raises(UserError, match="one collective on one network"):
        Portfolio((Entry(of_a_mesh.entries[0].schedule, 5), Entry(other, None)))


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.json"
    command = ["portfolio", "ring:3", "broadcast", "--to", "1M", "--timeout", "3", "-o", str(path), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in told["entries"]] == sorted(map(str, tmp_path.glob("ring.*.json")))
    assert verify(path)
    assert main(["portfolio", "ring:3", "broadcast", "--from", "2M", "--to", "1M"]) == 2

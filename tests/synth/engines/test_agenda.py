"""The agenda of engine auto: who is asked next, what is cut, and whose turn it is."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from syntony.base.deadline import CLOCK
from syntony.synth.engines.auto import CANDIDATES, Candidate, Found, Resumed, _Agenda
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.slicing import in_slices
from syntony.synth.engines.workers import Cutting, Question
from syntony.synth.model.collective import Collective
from syntony.topologies.topology import Topology


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


def test_gaining_cuts_go_on_before_those_of_what_promises_no_more(small: tuple[Topology, Collective]) -> None:
    """A turn may be too short for the number of slices that pays off."""
    topology, collective = small
    schedule = forest.run(topology, collective, 1 << 20, Budget())
    slow = [Candidate(engine, lambda *_: True, "long") for engine in ("pipeline", "teccl")]
    agenda = _Agenda(topology, collective, 1 << 20, Budget(60), slow)
    first = agenda.beside(2)
    assert first is not None
    agenda.hear(Found("pipeline", schedule, 1.9))
    agenda.hear(Found("hierarchy", schedule, 2.2, promise=1.5))
    cut = agenda.next([first], 2)
    assert isinstance(cut, Cutting)
    agenda.hear(Found("forest", in_slices(schedule, 2), 2.3, promise=1.5))
    agenda.hear(Found("hierarchy", schedule, 2.0, cut=True))
    assert agenda.next([first], 2, {cut.name: 1.0}) == Resumed(cut.name)
    other = agenda.next([first], 2, {cut.name: 2.0})  # the last turn gained nothing
    assert isinstance(other, Cutting)
    assert other.engine == "forest"


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


@pytest.mark.parametrize(("now", "begins"), [(3.0, True), (3.1, False)])
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

"""Workers: turns, pauses, the time that they count, and their ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import ClassVar

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.engines.nursery import Child
from syntony.synth.engines.workers import Found, Question, Refused, Workers, work
from syntony.synth.model.collective import Collective


def question(engine: str) -> Question:
    topology = random_network(0)
    return Question(engine, topology, Collective.make("reduce_scatter", topology.ranks), 1 << 20, 60.0, cuts=False)


@pytest.mark.parametrize("processor", [False, True])
def test_a_worker_is_paused_after_its_turn_and_goes_on_when_resumed(processor: bool) -> None:
    with Workers(1, processor) as workers:
        workers.ask(question("teccl"), turn=1e-3)
        found = []
        while workers.busy:
            found += list(workers.answers())
        assert list(workers.paused) == ["teccl"]
        (worker,) = workers._asked.values()
        assert worker._child._process
        number = worker._child._process[0]
        before = time.clock_gettime(~number << 3 | 2)
        time.sleep(0.2)
        assert time.clock_gettime(~number << 3 | 2) - before < 0.01  # it sleeps
        workers.ask(question("forest"))  # the one that is paused is not in the way
        while workers.busy:
            found += list(workers.answers())
        assert "forest" in [one.engine for one in found]
        workers.resume("teccl")
        while workers.busy:
            found += list(workers.answers())
        assert not workers.paused
        assert isinstance(found[-1], Found)
        assert found[-1].engine == "teccl"
        workers.ask(question("forest"))  # the same worker serves again
        assert {one.engine for one in workers.answers()} == {"forest"}


def test_what_was_answered_before_a_pause_arrives_though_nobody_is_at_work() -> None:
    with Workers(1) as workers:
        workers.ask(question("greedy"))  # answers once
        (worker,) = workers._asked.values()
        assert worker.connection.poll(60)
        worker.rests()  # its turn is taken to have ended after it answered
        assert workers.busy == 0
        found = list(workers.arrived())
        while workers.paused:
            found += list(workers.arrived())
        assert [one.engine for one in found if isinstance(one, Found)] == ["greedy"]


def test_the_first_worker_does_not_wait_for_solvers_that_later_ones_find_imported() -> None:
    def solvers(process: int) -> bool:
        return "/scipy/optimize/" in Path(f"/proc/{process}/maps").read_text()

    with Workers(2) as workers:
        for engine in ("greedy", "forest"):
            workers.ask(question(engine))
            worker = list(workers._asked.values())[-1]
            while not worker._child.begun():
                time.sleep(0.01)
            assert worker._child._process
            assert solvers(worker._child._process[0]) == (engine == "forest")
            nursery = workers._nursery._process
            assert nursery
            while not solvers(nursery.pid):
                time.sleep(0.01)


def test_a_clock_does_not_go_back_when_its_worker_begins() -> None:
    """What the nursery imported is counted, first by its own clock, then by the worker's."""
    with Workers(1, processor=True) as workers:
        workers.ask(question("forest"))
        (worker,) = workers._asked.values()
        shown = [0.0]
        while not worker._child.begun():
            shown.append(worker.spent())
            time.sleep(0.01)
        assert worker.spent() >= shown[-1] > 0
        assert worker._child.began > 0


class Heard(Question):
    """A question that keeps what it has."""

    seconds_had: ClassVar[list[float]] = []

    def answers(self, better: Callable[[Found], None] | None = None) -> Iterator[Found | Refused]:
        self.seconds_had.append(self.seconds)
        return iter(())


def test_imports_take_some_of_a_questions_seconds() -> None:
    """But none of its first turn."""
    here, there = Pipe()
    topology = random_network(0)
    here.send((Heard("forest", topology, Collective.make("broadcast", topology.ranks), 1 << 20, 60.0), 10.0))
    here.close()
    with pytest.raises(EOFError):
        work(there, lambda _: None, lambda: 13.0)
    assert Heard.seconds_had == [57.0]

    child = Told()
    with Workers(1, processor=True) as workers:
        workers._nursery.fork = lambda *_: child  # type: ignore[method-assign]
        child.began = 3.0
        workers.ask(question("teccl"), turn=2.0)
        (worker,) = workers._asked.values()
        child.took = 4.5
        assert worker.rest() == pytest.approx(0.5)
        child.took = 59.0
        worker.rests()
        worker.resume(0.0, 0.5)
        assert worker.rest() == pytest.approx(0.5)


def test_no_process_is_left() -> None:
    with Workers(2) as workers:
        for engine in ("teccl", "sccl"):
            workers.ask(question(engine))
        asked = list(workers._asked.values())
        while not all(worker._child.begun() for worker in asked):
            time.sleep(0.01)
        numbers = [worker._child._process[0] for worker in asked if worker._child._process]
    assert len(numbers) == 2
    end = time.monotonic() + 30
    while any(_runs(number) for number in numbers):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


class Told(Child):
    """A child that says what it took, and answers when told to."""

    def __init__(self) -> None:
        (answers, self.there), (turns, self.turned) = Pipe(), Pipe()
        super().__init__(Workers(1)._nursery, answers, turns)
        self.took = 0.0

    def seconds(self) -> float:
        return self.took

    def begun(self) -> bool:
        return True

    def end(self) -> None:
        for one in (self.answers, self.turns, self.there, self.turned):
            assert isinstance(one, Connection)
            one.close()


def test_who_waits_for_processors_loses_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's successor begins when it ended by its own time, however far the other is by then."""
    children = [Told(), Told()]
    with Workers(2, processor=True) as workers:
        begin = workers.now()
        monkeypatch.setattr(workers._nursery, "fork", lambda _: children[workers.busy])
        workers.ask(question("teccl"))
        workers.ask(question("sccl"))
        children[1].took = 30.0
        assert workers.now() - begin == pytest.approx(30.0, abs=5.0)  # nobody could begin before
        children[0].took = 10.0
        children[0].there.send(None)
        assert list(workers.answers()) == []
        assert workers.now() - begin == pytest.approx(10.0, abs=5.0)
        workers.ask(question("forest"))
        children[0].took = 50.0
        children[1].there.send(None)
        assert list(workers.answers()) == []
        assert workers.now() - begin == pytest.approx(30.0, abs=5.0)
        children[0].there.send(None)
        assert list(workers.answers()) == []
        assert workers.now() - begin == pytest.approx(50.0, abs=5.0)  # all have ended

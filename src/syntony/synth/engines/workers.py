"""Runs engines in separate processes: several at once, each ended when its time is up.

    auto ──(engine, problem, seconds)──▶ worker 0: forest     ──(schedule, simulated seconds)──▶ auto
         ──────────────────────────────▶ worker 1: pipeline   ──(refused: why)─────────────────▶
                                         ended at its limit; the next engine gets a new worker

Workers are forked from a fresh interpreter, not from the caller (nursery.py). A question can be asked for a turn: then
its worker is paused, so that others get the processor, and resumed later.

On a shared machine, wall-clock times are not reproducible. So workers can have limits on processor time, and
`Workers.now` then shows what a wall clock would if each of them had a processor to itself:

    wall clock       [worker 0: 3 s ][ waits for others ][worker 0: 1 s ]
    Workers.now      [worker 0: 3 s ][worker 0: 1 s ]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

import numpy as np

from syntony import _core
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, SlowerError
from syntony.synth.engines.nursery import Child, Nursery, forks
from syntony.synth.engines.pipeline.slicing import AS_CUT, BEYOND, MOST_TRANSFERS, Dull, streamed
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import LEAST_SLICES, Estimate, estimate
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import MOST_MESSAGES
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

GAIN = 0.999
"""A sliced schedule is taken only if it takes at most this part of the time."""
COMPARED = 1 << 17
"""Messages of the simulations by which schedules are compared, at most about."""
ROUGH = 1 << 15
"""Messages of a first, rough simulation, which is enough for a schedule that is clearly slower than the best one."""
SURE = 1 << 21
"""Messages of the simulation of a schedule that seems to be NEAR its bounds."""
NEAR = 1.05
"""Times the bounds: what seems to take at most this long is simulated once more, with SURE messages."""
LATE = 1.0
"""Seconds over its limit in which an engine may still answer: for bounds and simulation."""


@dataclass(frozen=True)
class Found:
    """An engine's schedule, and its simulated seconds.

    cut      into slices for that size, so that cutting is done
    busy     seconds for the bytes of its busiest link: cuts of it take no less
    promise  seconds that its cuts come near to; infinite: nothing is known of them
    """

    engine: str
    schedule: Schedule
    seconds: float
    cut: bool = False
    busy: float = 0.0
    promise: float = float("inf")

    @property
    def hoped(self) -> float:
        """Seconds that it, or a cut of it, is likely to take."""
        return min(self.seconds, self.promise)


@dataclass(frozen=True)
class Refused:
    """An engine gave no schedule, and why."""

    engine: str
    error: EngineError


@dataclass(frozen=True)
class Question:
    """A question to an engine.

    cuts  whether its result is also cut into slices
    beat  seconds of the best schedule so far: what cannot be faster is not simulated, and refused with SlowerError
    most  chunks of the result; None: no limit
    """

    engine: str
    topology: Topology
    collective: Collective
    size: int
    seconds: float
    cuts: bool = True
    beat: float = float("inf")
    most: int | None = None

    @property
    def name(self) -> str:
        """What it is called among all that one search asks."""
        return self.engine

    def answers(self, better: Callable[[Found], None] | None = None) -> Iterator[Found | Refused]:
        """Runs the engine in this process: yields its result, and then faster cuts of it.

        `better` gets intermediate results of engines that report them.
        """

        least = self.beat

        def tell(schedule: Schedule) -> None:
            nonlocal least
            if better is None or not budget.allows(schedule):
                return
            busy = busiest(schedule, self.size)
            if busy < least:
                found = self._found(schedule, busy, least)
                least = min(least, found.seconds)
                better(found)

        budget = Budget(self.seconds, chunks=self.most, better=tell if better else None)
        try:
            schedule = engine_named(self.engine).run(self.topology, self.collective, self.size, budget)
            budget.refuse_more(schedule)
        except EngineError as error:
            yield Refused(self.engine, error)
            return
        busy = busiest(schedule, self.size)
        if busy >= self.beat:
            slower = SlowerError(f"the busiest link of {self.engine}'s schedule takes {busy:.3g} s for its bytes")
            yield Refused(self.engine, slower)
            return
        found = self._found(schedule, busy, self.beat)
        yield found
        if self.cuts:
            yield from _cuts(found, self.size, budget)

    def _found(self, schedule: Schedule, busy: float, beat: float) -> Found:
        """What the schedule is worth. Raises ValueError if it answers another question: no proof would notice."""
        asked, got = self.collective, schedule.collective
        same = (asked.kind, asked.ranks, asked.root) == (got.kind, got.ranks, got.root)
        if not same or (schedule.topology is not self.topology and schedule.topology.links != self.topology.links):
            asked_for = f"{asked.kind} on {self.topology.name}"
            raise ValueError(f"engine {self.engine}, asked for {asked_for}, has {got.kind} on {schedule.topology.name}")
        seconds = seconds_at(schedule, self.size, beat, COMPARED)
        return Found(self.engine, schedule, seconds, busy=busy, promise=_promised(schedule, busy))


@dataclass(frozen=True)
class Cutting:
    """Asks for cuts of what an engine has found, into slices. `beat`: seconds of the best schedule so far; `most`:
    chunks, None for no limit."""

    found: Found
    size: int
    seconds: float
    beat: float = float("inf")
    most: int | None = None

    @property
    def engine(self) -> str:
        """Whose schedule it is."""
        return self.found.engine

    @property
    def name(self) -> str:
        """What it is called among all that one search asks."""
        return f"cuts of {self.engine}, {self.found.seconds:.9g} s"

    def answers(self, better: Callable[[Found], None] | None = None) -> Iterator[Found | Refused]:
        """The cuts, in this process, each if it is faster than those before; they are all that is told."""
        return _cuts(self.found, self.size, Budget(self.seconds, chunks=self.most), self.beat)


def _cuts(best: Found, size: int, budget: Budget, beat: float = float("inf")) -> Iterator[Found]:
    if best.schedule.in_network:
        return
    most, dull, least = 1, Dull(), best.busy
    for slices, orders in streamed(best.schedule, size):
        if slices > BEYOND * most:
            continue
        tried = {AS_CUT: best.seconds} if slices == 1 else {}  # it was simulated before it came here
        for order, made in orders.items():
            if order in dull or order in tried:
                continue
            if not budget.left() or least >= best.seconds * GAIN:
                return
            cut = made()
            if not budget.allows(cut):
                return
            tried[order] = seconds_at(cut, size, min(beat, best.seconds), COMPARED)
            if tried[order] < best.seconds * GAIN:
                most = slices
                best = Found(best.engine, cut, tried[order], cut=True, busy=least)
                yield best
        dull.hear(tried)


def busiest(schedule: Schedule, size: int) -> float:
    """Seconds for the bytes of the busiest link. However it is cut, the schedule takes no less."""
    return float(size * seconds_per_byte(replace(schedule, rounds=np.zeros(0, np.int32))))


def _promised(schedule: Schedule, busy: float) -> float:
    """Seconds that cuts of it come near to: those of the busiest link, and those of a single byte. With small messages
    they may take less, since different links cause the two. Infinite if it is too large to be cut."""
    if len(schedule.transfers) > MOST_TRANSFERS:
        return float("inf")
    return busy + simulate(schedule, 1).seconds


def seconds_at(schedule: Schedule, size: int, beat: float = float("inf"), most: int = MOST_MESSAGES) -> float:
    """Simulated seconds at `size` bytes, messages cut as the CPU executor cuts them; estimated where that makes more
    than about `most` messages (simulation/long_messages.py).

    `beat`: of a schedule that takes longer than these seconds, a rougher estimate is enough. What seems to be near the
    schedule's bounds, which ends a search, is not believed before it is sure; and no estimate is below them.
    """
    least = schedule.bounds.seconds(size) if schedule.bounds else 0.0
    if beat < float("inf") and 2 * _messages(schedule, ROUGH) <= _messages(schedule, most):
        rough = estimate(schedule, size, _messages(schedule, ROUGH))
        if rough.sure or rough.seconds * (1 - rough.error) > beat:
            return _no_less(rough, least)
    found = estimate(schedule, size, _messages(schedule, most))
    if not found.sure and found.seconds <= NEAR * least:
        found = estimate(schedule, size, SURE)
        if not found.sure and found.seconds <= NEAR * least:
            return max(found.longest, _no_less(found, least))
    return _no_less(found, least)


def _no_less(found: Estimate, least: float) -> float:
    return max(found.seconds, least) if found.error else found.seconds


def _messages(schedule: Schedule, most: int) -> int:
    """About how many a simulation has: where chunks are cut already, lanes have enough without more slices."""
    moved = schedule.transfers
    lanes = len(np.unique(moved.src.astype(np.int64) * len(schedule.topology.nodes) + moved.dst))
    return min(MOST_MESSAGES, max(most, LEAST_SLICES * lanes))


class Workers:
    """At most `most` workers at a time; `with` ends them all. `processor`: they count processor time, see the top of
    the file."""

    def __init__(self, most: int, processor: bool = False) -> None:
        self.most, self.processor = most, processor
        self._nursery = Nursery("syntony.synth.engines.workers", processor)
        self._idle: list[_Worker] = []
        self._asked: dict[Connection, _Worker] = {}  # at work, or paused
        self._free = [0.0] * most  # since when each of the rest could work
        self._own = time.process_time()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        for worker in self._idle:
            worker.end()
        self._idle = []
        self._nursery.end()

    def drop(self) -> None:
        """Ends those that are at work, or paused."""
        for worker in self._asked.values():
            self._stops(worker)
            worker.end()
        self._asked = {}

    @property
    def busy(self) -> int:
        """How many are at work."""
        return len(self._at_work())

    @property
    def questions(self) -> list[Question | Cutting]:
        """What they are at."""
        return [worker.question for worker in self._at_work() if worker.question]

    @property
    def paused(self) -> dict[str, float]:
        """By name, the questions that are paused, and the seconds they took so far."""
        waiting = (worker for worker in self._asked.values() if worker.paused)
        return {worker.question.name: worker.spent() for worker in waiting if worker.question}

    def now(self) -> float:
        """Seconds: what this process took, and beside it each worker, as if it had a processor to itself.

        While others work, it is the time at which the next could begin, whichever processors they wait for.
        """
        working = [worker.now() for worker in self._at_work()]
        first = min(self._free) if working and self._free else max(working + self._free)
        return max(time.process_time() - self._own, first)

    def ask(self, question: Question | Cutting, turn: float = float("inf")) -> None:
        """Hands the question to a worker; at most `most` may be at work.

        After `turn` seconds of search it is paused. What a new worker has to import takes some of the question's
        seconds, but none of its first turn.
        """
        assert self.busy < self.most
        solver = engine_named(question.engine).solver
        worker = self._idle.pop() if self._idle else _Worker(self._nursery.fork(solver))
        worker.ask(question, self._begins(), turn)
        self._asked[worker.connection] = worker

    def resume(self, name: str, turn: float = float("inf")) -> None:
        """Lets the worker go on that was paused at the question of that name."""
        assert self.busy < self.most
        waiting = (worker for worker in self._asked.values() if worker.paused and worker.question)
        worker = next(one for one in waiting if one.question and one.question.name == name)
        worker.resume(self._begins(), turn)

    def _begins(self) -> float:
        """The time at which the next one begins, which is then no longer free."""
        now = max(time.process_time() - self._own, min(self._free))
        self._free.remove(min(self._free))
        return now

    def _stops(self, worker: _Worker) -> None:
        """Another one could work from then on."""
        if not worker.paused:
            self._free.append(worker.now())

    def arrived(self) -> Iterator[Found | Refused]:
        """The answers that are there, without waiting."""
        while wait(list(self._asked), 0.0):
            yield from self.answers()

    def answers(self) -> Iterator[Found | Refused]:
        """Waits for answers, ends, limits and pauses, for at least one of them. Someone must be at work, or have
        answered before its pause."""
        ready: list[object] = []
        while not ready and not any(worker.due() for worker in self._at_work()):
            watched = [*self._asked, *(worker.turns for worker in self._at_work())]
            rests = [worker.rest() for worker in self._at_work()]
            ready = list(wait(watched, min(rests, default=0.0)))
            begun = min((worker.now() for worker in self._at_work()), default=0.0)  # nothing could be asked before
            self._free = [max(free, begun) for free in self._free]
        for connection in ready:
            assert isinstance(connection, Connection)
            worker = self._asked.get(connection)
            if worker is None:
                continue  # it has begun, or paused
            assert worker.question is not None
            try:
                answer = connection.recv()
            except (EOFError, ConnectionError):
                self._stops(worker)
                worker.end()
                del self._asked[connection]
                died = EngineError(f"engine {worker.question.engine} ended its process")
                yield Refused(worker.question.engine, died)
                continue
            if answer is None:
                self._idle.append(worker)
                self._stops(worker)
                del self._asked[connection]
            elif isinstance(answer, (Found, Refused)):
                yield answer
            else:
                raise AssertionError(f"engine {worker.question.engine} failed:\n{answer}")
        for connection, worker in list(self._asked.items()):
            if worker.paused or not worker.due() or not worker.question:
                continue
            self._stops(worker)
            if worker.left():
                worker.rests()
                continue
            worker.end()
            del self._asked[connection]
            if isinstance(worker.question, Cutting):
                continue
            text = f"engine {worker.question.engine} had no answer within {worker.question.seconds:.3g} s"
            yield Refused(worker.question.engine, OutOfTimeError(text))

    def _at_work(self) -> list[_Worker]:
        return [worker for worker in self._asked.values() if not worker.paused]


class _Worker:
    """A process that answers questions, one after another, each in one or more turns."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.connection, self.turns = child.answers, child.turns
        self.question: Question | Cutting | None = None
        self.paused, self._told = False, False
        self._turn, self._before = 0.0, 0.0  # seconds of this turn, and of those before it
        self._begun, self._since = 0.0, 0.0  # its beginning for who asked, and for the child

    def ask(self, question: Question | Cutting, now: float, turn: float) -> None:
        """Hands it the question."""
        self.question, self._before = question, 0.0
        self.resume(now, turn)
        self.connection.send((question, self._since))

    def resume(self, now: float, turn: float) -> None:
        """Lets it go on."""
        self._child.resume()  # if it was to pause when it answered, it did so in waiting for a question
        self.paused, self._told = False, False
        self._turn, self._begun, self._since = turn, now, self._child.seconds()

    def now(self) -> float:
        """Its time, for who asked."""
        return self._begun + self._child.seconds() - self._since

    def spent(self) -> float:
        """Seconds at its question."""
        return self._before + (0.0 if self.paused else self._child.seconds() - self._since)

    def left(self) -> float:
        """Seconds until its limit; never negative."""
        assert self.question is not None
        return max(0.0, self.question.seconds + LATE - self.spent())

    def rest(self) -> float:
        """Seconds until something may be due."""
        return max(0.0, self._end() - self.spent()) if self._can_pause() else self.left()

    def due(self) -> bool:
        """Whether its limit has come, or its pause has begun. Tells it to pause at the end of its turn."""
        if self._can_pause() and self._end() <= self.spent():
            self._child.pause()
            self._told = True
        return self._child.pauses() or not self.left()

    def _can_pause(self) -> bool:
        """Whether the end of its turn comes within its search; in the work after that, it is not paused."""
        assert self.question is not None
        return not self._told and self._child.begun() and self._end() < self.question.seconds

    def _end(self) -> float:
        """Seconds at its question when its turn ends."""
        return self._before + self._turn + max(0.0, self._child.began - self._since)

    def rests(self) -> None:
        """Its pause has begun."""
        self._child.stop()
        self._before, self.paused = self.spent(), True

    def end(self) -> None:
        """Ends it."""
        self._child.end()


def work(connection: Connection, tell: Callable[[object], None], seconds: Callable[[], float]) -> None:
    """What a worker does: answers questions. `tell` sends through the connection; `seconds`: as who asks counts."""
    import traceback

    while True:
        question, asked = connection.recv()
        late = max(0.0, seconds() - asked)  # there were imports
        try:
            for answer in replace(question, seconds=max(0.0, question.seconds - late)).answers(tell):
                tell(answer)
            tell(None)
        except Exception:
            tell(traceback.format_exc())


def cores() -> int:
    """How many processes can run at once here, by affinity and by the quota of its control group."""
    return _core.usable_cpus()


if __name__ == "__main__":
    from syntony.synth.engines import workers

    forks(sys.argv[1:], workers.work)

"""Runs engines in separate processes: several at once, each ended when its time is up.

    auto ──(engine, problem, seconds)──▶ worker 0: forest     ──(schedule, simulated seconds)──▶ auto
         ──────────────────────────────▶ worker 1: pipeline   ──(refused: why)─────────────────▶
                                         ended at its limit; the next engine gets a new worker

A worker is a fresh interpreter, not a fork: the caller of an engine may have threads, GPUs or MPI.

On a shared machine, wall-clock times are not reproducible. So workers can have limits on processor time, and
`Workers.now` then shows what a wall clock would if each of them had a processor to itself:

    wall clock       [worker 0: 3 s ][ waits for others ][worker 0: 1 s ]
    Workers.now      [worker 0: 3 s ][worker 0: 1 s ]
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait

import numpy as np

from syntony import _core
from syntony.base.deadline import CLOCK
from syntony.base.supervised import die_with_parent
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, SlowerError
from syntony.synth.engines.pipeline.slicing import AS_CUT, BEYOND, Dull, streamed
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import LEAST_SLICES, estimate
from syntony.synth.simulation.usual_slice import MOST_MESSAGES
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

GAIN = 0.999
"""A sliced schedule is taken only if it takes at most this part of the time."""
COMPARED = 1 << 17
"""Schedules are compared in simulations of at most about this many messages;"""
ROUGH = 1 << 15
"""of this many, if that shows already that they are slower than the best one;"""
SURE = 1 << 21
"""of this many, if they seem to take at most"""
NEAR = 1.05
"""this many times as long as their bounds."""
LATE = 1.0
"""Seconds over its limit in which an engine may still answer: for bounds and simulation."""


@dataclass(frozen=True)
class Found:
    """An engine's schedule, and its simulated seconds. `cut`: into slices for that size, so that cutting is done."""

    engine: str
    schedule: Schedule
    seconds: float
    cut: bool = False


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
    """

    engine: str
    topology: Topology
    collective: Collective
    size: int
    seconds: float
    cuts: bool = True
    beat: float = float("inf")

    def answers(self, better: Callable[[Found], None] | None = None) -> Iterator[Found | Refused]:
        """Runs the engine in this process: yields its result, and then faster cuts of it.

        `better` gets intermediate results of engines that report them.
        """

        least = self.beat

        def tell(schedule: Schedule) -> None:
            nonlocal least
            if better is not None and busiest(schedule, self.size) < least:
                found = Found(self.engine, schedule, seconds_at(schedule, self.size, least, COMPARED))
                least = min(least, found.seconds)
                better(found)

        budget = Budget(self.seconds, better=tell if better else None)
        try:
            schedule = engine_named(self.engine).run(self.topology, self.collective, self.size, budget)
        except EngineError as error:
            yield Refused(self.engine, error)
            return
        if self.beat < float("inf") and (busy := busiest(schedule, self.size)) >= self.beat:
            slower = SlowerError(f"the busiest link of {self.engine}'s schedule takes {busy:.3g} s for its bytes")
            yield Refused(self.engine, slower)
            return
        found = Found(self.engine, schedule, seconds_at(schedule, self.size, self.beat, COMPARED))
        yield found
        if self.cuts:
            yield from _cuts(found, self.size, budget)


@dataclass(frozen=True)
class Cutting:
    """Asks for cuts of what an engine has found, into slices. `beat`: seconds of the best schedule so far."""

    found: Found
    size: int
    seconds: float
    beat: float = float("inf")

    @property
    def engine(self) -> str:
        """Whose schedule it is."""
        return self.found.engine

    def answers(self, better: Callable[[Found], None] | None = None) -> Iterator[Found | Refused]:
        """The cuts, in this process, each if it is faster than those before; they are all that is told."""
        return _cuts(self.found, self.size, Budget(self.seconds), self.beat)


def _cuts(best: Found, size: int, budget: Budget, beat: float = float("inf")) -> Iterator[Found]:
    if best.schedule.in_network:
        return
    most, dull = 1, Dull()
    for slices, orders in streamed(best.schedule, size):
        if slices > BEYOND * most:
            return
        tried = {AS_CUT: best.seconds} if slices == 1 else {}  # it was simulated before it came here
        for order, made in orders.items():
            if order in dull or order in tried:
                continue
            if not budget.left():
                return
            cut = made()
            tried[order] = seconds_at(cut, size, min(beat, best.seconds), COMPARED)
            if tried[order] < best.seconds * GAIN:
                most = slices
                best = Found(best.engine, cut, tried[order], cut=True)
                yield best
        dull.hear(tried)


def busiest(schedule: Schedule, size: int) -> float:
    """Seconds for the bytes of the busiest link. However it is cut, the schedule takes no less."""
    return float(size * seconds_per_byte(replace(schedule, rounds=np.zeros(0, np.int32))))


def seconds_at(schedule: Schedule, size: int, beat: float = float("inf"), most: int = MOST_MESSAGES) -> float:
    """Simulated seconds at `size` bytes, messages cut as the CPU executor cuts them; estimated where that makes more
    than about `most` messages (simulation/long_messages.py).

    `beat`: of a schedule that takes longer than these seconds, a rougher estimate is enough. What seems to be near the
    schedule's bounds, which ends a search, is not believed before it is sure.
    """
    if beat < float("inf") and 2 * _messages(schedule, ROUGH) <= _messages(schedule, most):
        rough = estimate(schedule, size, _messages(schedule, ROUGH))
        if rough.sure or rough.seconds * (1 - rough.error) > beat:
            return rough.seconds
    found = estimate(schedule, size, _messages(schedule, most))
    near = NEAR * schedule.bounds.seconds(size) if schedule.bounds else 0.0
    if not found.sure and found.seconds <= near:
        found = estimate(schedule, size, SURE)
    return found.seconds if found.sure or found.seconds > near else max(found.seconds, found.longest)


def _messages(schedule: Schedule, most: int) -> int:
    """About how many a simulation has: where chunks are cut already, lanes have enough without more slices."""
    moved = schedule.transfers
    lanes = len(np.unique(moved.src.astype(np.int64) * len(schedule.topology.nodes) + moved.dst))
    return min(MOST_MESSAGES, max(most, LEAST_SLICES * lanes))


class Workers:
    """At most `most` workers; `with` ends them all. `processor`: they count processor time, see the top of the file."""

    def __init__(self, most: int, processor: bool = False) -> None:
        self.most, self.processor = most, processor
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}
        self._now, self._own = 0.0, time.process_time()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        for worker in self._idle:
            worker.end()
        self._idle = []

    def drop(self) -> None:
        """Ends those that are at work."""
        for worker in self._busy.values():
            worker.end()
        self._busy = {}

    @property
    def busy(self) -> int:
        """How many are at work."""
        return len(self._busy)

    @property
    def questions(self) -> list[Question | Cutting]:
        """What they are at."""
        return [worker.question for worker in self._busy.values() if worker.question]

    def now(self) -> float:
        """Seconds: what this process took, and beside it each worker, as if it had a processor to itself."""
        own = time.process_time()
        self._now, self._own = self._now + own - self._own, own
        self._now = max([self._now, *(worker.begun + worker.spent() for worker in self._busy.values())])
        return self._now

    def ask(self, question: Question | Cutting) -> None:
        """Hands the question to a worker; at most `most` may be at work."""
        assert self.busy < self.most
        worker = self._idle.pop() if self._idle else _Worker(self.processor)
        worker.ask(question, self.now())
        self._busy[worker.connection] = worker

    def arrived(self) -> Iterator[Found | Refused]:
        """The answers that are there, without waiting."""
        while wait(list(self._busy), 0.0):
            yield from self.answers()

    def answers(self) -> Iterator[Found | Refused]:
        """Waits for answers, ends and limits, for at least one of them; someone must be at work."""
        ready: list[object] = []
        while not ready and min(worker.left() for worker in self._busy.values()) > 0:
            ready = list(wait(list(self._busy), min(worker.left() for worker in self._busy.values())))
        for connection in ready:
            assert isinstance(connection, Connection)
            worker = self._busy[connection]
            assert worker.question is not None
            try:
                answer = connection.recv()
            except (EOFError, ConnectionError):
                worker.end()
                del self._busy[connection]
                died = EngineError(f"engine {worker.question.engine} ended its process")
                yield Refused(worker.question.engine, died)
                continue
            if answer is None:
                self._idle.append(worker)
                self.now()  # while it counts
                del self._busy[connection]
            elif isinstance(answer, (Found, Refused)):
                yield answer
            else:
                raise AssertionError(f"engine {worker.question.engine} failed:\n{answer}")
        for connection, worker in list(self._busy.items()):
            if not worker.left() and worker.question:
                self.now()
                worker.end()
                del self._busy[connection]
                if isinstance(worker.question, Cutting):
                    continue
                text = f"engine {worker.question.engine} had no answer within {worker.question.seconds:.3g} s"
                yield Refused(worker.question.engine, OutOfTimeError(text))


class _Worker:
    """A process that answers questions, one after another. `begun`: when it was asked, by whoever asked."""

    def __init__(self, processor: bool) -> None:
        self.connection, there = Pipe()
        command = [
            sys.executable,
            "-m",
            "syntony.synth.engines.workers",
            str(there.fileno()),
            *["processor"] * processor,
        ]
        self._process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        self._processor = processor
        self.question: Question | Cutting | None = None
        self.begun, self._before, self._last = 0.0, 0.0, 0.0
        there.close()

    def ask(self, question: Question | Cutting, now: float) -> None:
        """Hands it the question."""
        self.question, self.begun, self._before = question, now, self._clock()
        self.connection.send(question)

    def spent(self) -> float:
        """Seconds at its question."""
        return self._clock() - self._before

    def left(self) -> float:
        """Seconds until its limit; never negative."""
        assert self.question is not None
        return max(0.0, self.question.seconds + LATE - self.spent())

    def end(self) -> None:
        """Ends it."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def _clock(self) -> float:
        if not self._processor:
            return time.monotonic()
        with suppress(OSError):  # it has ended
            self._last = time.clock_gettime(~self._process.pid << 3 | 2)  # as clock_getcpuclockid(3) numbers clocks
        return self._last


def _work(connection: Connection) -> None:
    import traceback

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Whoever asks is interrupted, and ends this process.
    die_with_parent()
    while True:
        question = connection.recv()
        try:
            for answer in question.answers(connection.send):
                connection.send(answer)
            connection.send(None)
        except Exception:
            connection.send(traceback.format_exc())


def cores() -> int:
    """How many processes can run at once here, by affinity and by the quota of its control group."""
    return _core.usable_cpus()


if __name__ == "__main__":
    from syntony.synth.engines import workers

    with suppress(EOFError, ConnectionError):  # whoever asked is gone, or wants no more
        if sys.argv[2:]:
            CLOCK.set(time.process_time)
        workers._work(Connection(int(sys.argv[1])))

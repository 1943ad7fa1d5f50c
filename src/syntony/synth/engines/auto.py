"""Engine `auto`: runs all suitable engines, several at once, and keeps the schedule with the shortest simulated time.

    at once     forest ──▶ greedy ──▶ hierarchy ──▶ greedy in slices ──▶ ..    quick engines, then cuts of their
                pipeline ──────▶ teccl ─────────────▶ pipeline ───▶ ..         results; beside them, slow engines
    simulated    12 us      10 us        9 us      8 us                        at the size, cut as the executor cuts
    kept                                           greedy

Each engine runs in its own process (workers.py), so a stuck one delays nobody, and a late one is ended. Slow engines
take turns: they are paused and resumed, and the one with the best result goes on beside the others. The search ends
when a schedule is as fast as the bounds allow, when all engines have answered, or when time is up; then the best
schedule so far is returned. Its proof lists the engines and their results.

With `auto:in_network`, switches may also add and copy; without it, ranks alone can run the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Literal

from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, SlowerError
from syntony.synth.engines.pipeline.slicing import MOST_TRANSFERS
from syntony.synth.engines.registry import engine_named
from syntony.synth.engines.workers import Cutting, Found, Question, Refused, Workers, busiest, cores, seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies.topology import Topology

__all__ = ["Found", "Refused", "attempts", "candidates", "run", "seconds_at"]

COMPARED = "fastest simulated"
"""The beginning of a proof that proves nothing, but says what was compared."""
CLOSE = 1.01
"""A schedule within 1 % of the bounds ends the search."""
SWITCHES = "in_network"
"""The argument that allows switches to add and copy."""
PROMPT = (SWITCHES, "forest", "flow", "one_shot", "greedy", "bfb")
"""Engines that run first, in this process,"""
SMALL = 48
"""on networks of up to this many ranks."""
SPARED = ("greedy",)
"""Quick engines that come last where latency does not matter: they are rarely the best there, and their many crossing
messages take long to simulate unless something faster is known."""
MOST_WORKERS = 4
"""Each worker needs the memory of a search."""
PATIENCE = 0.5
"""The part of the remaining time that an engine gets while others wait; the very first one gets all of it."""
STARTUPS = 0.002
"""Where latency alone takes more than this part of the bound at the size, order matters: slow engines come earlier."""
HOPEFUL = 2.0
"""There, cuts of a result that takes more than this many times as long as the best do not come before a second slow
engine;"""
NEAR = 1.1
"""elsewhere, this many times. Nearer results are cut before any slow engine begins or goes on, but the best one."""
SEARCHING = 0.9
"""The part of an engine's time for its search; the rest is for the work after it (proof, bounds, simulation)."""
TURN = 1.0
"""Seconds of a slow engine's turn, if others wait: enough to start and to have a first result;"""
TURNS = 0.125
"""or this part of the time limit, if that is more."""
NOBODY: Mapping[str, float] = MappingProxyType({})
EXACT_PATHS = ("all_to_all", "gather", "scatter")


@dataclass(frozen=True)
class Candidate:
    """The name of an engine, the problems that it is used for, and how long it takes.

    takes    quick; or slow, and run in turns beside the quick ones
    """

    engine: str
    worth: Callable[[Topology, Collective], bool]
    takes: Literal["little", "long"] = "little"


def _up_to(ranks: int, rooted: int = 0) -> Callable[[Topology, Collective], bool]:
    """`rooted`: of collectives with a root, whose few trees what is too slow for the trees of all ranks still finds."""
    return lambda topology, collective: collective.ranks <= (rooted if rooted and collective.rooted else ranks)


def _trees(topology: Topology, collective: Collective) -> bool:
    return collective.kind not in EXACT_PATHS


def _paths(topology: Topology, collective: Collective) -> bool:
    return collective.kind in EXACT_PATHS


def _few_trees(topology: Topology, collective: Collective) -> bool:
    """Few equal trees stream better through switches than many unequal ones."""
    return _trees(topology, collective) and _up_to(64, 512)(topology, collective)


def _direct(topology: Topology, collective: Collective) -> bool:
    """With symmetry, one root's steps are those of all."""
    return (
        _trees(topology, collective)
        and collective.ranks <= (4096 if topology.generators else 256)
        and not any(node.kind != "rank" for node in topology.nodes)
    )


def _uneven(topology: Topology, collective: Collective) -> bool:
    return collective.kind == "all_to_all" and collective.ranks <= 256


def _summed_by_all(topology: Topology, collective: Collective) -> bool:
    return collective.kind == "all_reduce"


def _switches_help(topology: Topology, collective: Collective) -> bool:
    return any(node.able for node in topology.nodes)


CANDIDATES = (
    Candidate(SWITCHES, _switches_help),
    Candidate("forest", _trees),
    Candidate("flow", _paths),
    Candidate("one_shot", _summed_by_all),
    Candidate("greedy", _up_to(256, 1024)),
    Candidate("bfb", _direct),
    Candidate("pipeline", _few_trees, "long"),
    Candidate("hierarchy", _up_to(64, 4096)),
    Candidate("fast", _uneven),
    Candidate("teccl", _up_to(SMALL), "long"),
    Candidate("sccl", _up_to(16), "long"),
    Candidate("taccl", _up_to(SMALL), "long"),
    Candidate("blink", _few_trees),
    Candidate("forest:2", _few_trees),
    Candidate("forest:4", _few_trees),
)
"""In the order in which they run; slow ones beside the others, the first of them at once, the next in their turn where
latency matters."""
FALLBACK = "greedy"
"""The engine that runs if no other one returned a schedule."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the module docstring. With steps or rounds given, it is engine `sccl`.

    Its proof says what was compared. Raises EngineError if no engine returns a schedule.
    """
    best: Found | None = None
    told: dict[str, str] = {}
    refusal: EngineError | None = None
    for one in attempts(topology, collective, size, budget, argument):
        if isinstance(one, Refused):
            refusal = one.error
            told.setdefault(one.engine, _reason(one.error))
            continue
        told[one.engine] = f"{one.seconds * 1e6:.4g} us"
        if best is None or one.seconds < best.seconds:
            best = one
            if budget.better is not None:
                budget.better(best.schedule)
    if best is None:
        if refusal is not None and not isinstance(refusal, OutOfTimeError):
            raise refusal
        asked = f" ({', '.join(map(' '.join, told.items()))})" if told else ""
        raise OutOfTimeError(f"no engine had a schedule within {budget.timeout:g} s{asked}; --timeout allows more")
    if len(told) == 1:
        return best.schedule
    proofs = [best.schedule.proof, f"{COMPARED} at {size} bytes of {', '.join(map(' '.join, told.items()))}"]
    return replace(best.schedule, proof="; ".join(filter(None, proofs)))


def _reason(error: EngineError) -> str:
    if isinstance(error, SlowerError):
        return "slower"
    return "out of time" if isinstance(error, OutOfTimeError) else "refused"


def candidates(
    topology: Topology,
    collective: Collective,
    size: int,
    budget: Budget,
    argument: str = "",
    known: Collection[str] = (),
    workers: Workers | None = None,
) -> Iterator[Found]:
    """The schedules of the candidates, as they are found; `known` engines do not run again.

    `workers` can be shared by consecutive searches; by default the search has its own.
    Raises EngineError if there is no schedule.
    """
    none_yet, refusal = not known, None
    for one in attempts(topology, collective, size, budget, argument, known, workers):
        if isinstance(one, Found):
            none_yet = False
            yield one
        else:
            refusal = one.error
    if none_yet:
        raise refusal or OutOfTimeError(f"no engine had a schedule within {budget.timeout:g} s")


def attempts(
    topology: Topology,
    collective: Collective,
    size: int,
    budget: Budget,
    argument: str = "",
    known: Collection[str] = (),
    workers: Workers | None = None,
) -> Iterator[Found | Refused]:
    """The answers of the engines, in order of arrival; see `candidates`."""
    if argument not in ("", SWITCHES):
        raise EngineError(f"engine auto takes the argument {SWITCHES} or none, not '{argument}'")
    if budget.steps is not None or budget.rounds is not None:
        yield Found("sccl", engine_named("sccl").run(topology, collective, size, budget), 0.0)
        return
    waiting = [
        candidate
        for candidate in CANDIDATES
        if candidate.worth(topology, collective)
        and candidate.engine not in known
        and (argument or candidate.engine != SWITCHES)
    ] or ([Candidate(FALLBACK, _up_to(collective.ranks))] if not known else [])
    agenda = _Agenda(topology, collective, size, budget, waiting)
    with nullcontext(workers) if workers else Workers(most_workers()) as workers:
        try:
            for asked in agenda.prompt() if collective.ranks <= SMALL else ():
                if not workers.busy and budget.left() and (long := agenda.beside(workers.most)):
                    workers.ask(long, agenda.turn(long))  # it works while the others run here
                for answer in chain(asked.answers(), workers.arrived()):
                    yield answer
                    if _ends(answer, size):
                        return
                    agenda.hear(answer)
                if not budget.left():
                    return
            while True:
                while workers.busy < workers.most and budget.left():
                    more = agenda.next(workers.questions, workers.most, workers.paused)
                    if more is None:
                        break
                    if isinstance(more, Resumed):
                        workers.resume(more.engine, agenda.turn(more))
                    else:
                        workers.ask(more, agenda.turn(more))
                if not workers.busy:
                    return
                for answer in workers.answers():
                    yield answer
                    if _ends(answer, size):
                        return
                    agenda.hear(answer)
        finally:
            workers.drop()


@dataclass(frozen=True)
class Resumed:
    """The turn of an engine that is paused."""

    engine: str


class _Agenda:
    """The remaining questions: quick engines, then cuts of all results; beside both, the slow ones.

    A second slow one waits for cuts of the best results, and for the quick ones; where latency matters, only for those
    before it. What a slow one reports before its end is cut, too, once nothing else waits.

    Slow ones take turns: at the end of one, that with the best result so far goes on, and in the other's place those
    that have not begun, in their order, and then those that took the least time."""

    def __init__(
        self, topology: Topology, collective: Collective, size: int, budget: Budget, candidates: Sequence[Candidate]
    ) -> None:
        self._topology, self._collective, self._size, self._budget = topology, collective, size, budget
        self._place = {candidate.engine: number for number, candidate in enumerate(candidates)}
        self._soon = [candidate.engine for candidate in candidates if candidate.takes == "little"]
        self._beside = [candidate for candidate in candidates if candidate.takes != "little"]
        self._slow = {candidate.engine for candidate in self._beside}
        self._first = True
        self._startups = False  # whether latency matters at this size, as far as answers tell
        self._best = float("inf")  # seconds of the best of all answers
        self._reached: dict[str, float] = {}  # by engine, seconds of its best answer
        self._least: dict[str, float] = {}  # likewise, before it is cut
        self._uncut: list[Found] = []  # such results until they are cut, and later ones that are slower before that
        self._told: set[tuple[str, float]] = set()  # all results before they are cut: engines and seconds

    def prompt(self) -> Iterator[Question]:
        """Questions for this process, on a small network: they are answered before a worker has started."""
        while self._soon and self._soon[0] in PROMPT:
            asked = self.next([], 1)
            assert isinstance(asked, Question)
            yield asked

    def next(
        self, busy: Sequence[Question | Cutting], most: int, paused: Mapping[str, float] = NOBODY
    ) -> Question | Cutting | Resumed | None:
        """The next question, if of `most` workers those are busy with others; None if there is none (for now).

        `paused`: engines whose turn is over, and the seconds that they took so far.
        """
        leader = min(self._slow & self._reached.keys(), key=lambda engine: self._reached[engine], default="")
        if leader in paused and most > 1:
            return Resumed(leader)
        left = SEARCHING * self._budget.left()
        at_work = {one.engine for one in busy if isinstance(one, Question)}
        slow = len(at_work & self._slow)
        in_turn = self._second_in_turn()
        uncut = [one.seconds / self._best for one in self._uncut if one.engine not in at_work]
        cuts_in_turn = in_turn or not self._beside
        cut_first = cuts_in_turn and any(ratio <= (HOPEFUL if self._startups else NEAR) for ratio in uncut)
        cut_before_all = cuts_in_turn and any(ratio <= NEAR for ratio in uncut)
        second = in_turn and (self._startups or not self._soon) and not cut_first
        others = self._soon or self._uncut  # they are soon done
        if not cut_before_all and (not others or (most > 1 and slow < 1 + second)):
            if self._beside:
                return self._asked_anew()
            if paused:
                return Resumed(min(paused, key=lambda engine: (engine != leader, paused[engine])))
        if self._soon and not cut_first:
            engine = self._soon.pop(0)
            left, self._first = left if self._first else left * PATIENCE, False
            return self._question(engine, left)
        if self._uncut:
            self._uncut.sort(key=lambda one: (one.engine in at_work, one.seconds))
            best = self._uncut.pop(0)
            left *= PATIENCE if best.seconds > self._best and (self._soon or self._beside) else 1.0
            return Cutting(best, self._size, left, self._best)
        return None

    def _second_in_turn(self) -> bool:
        """Whether a slow engine that was not asked yet stands before all quick ones that are left."""
        if not self._beside:
            return False
        return not self._soon or self._place[self._beside[0].engine] < self._place[self._soon[0]]

    def beside(self, most: int) -> Question | None:
        """The first slow question, if of `most` workers one is free while the others run."""
        return self._asked_anew() if self._beside and most > 1 else None

    def turn(self, asked: Question | Cutting | Resumed) -> float:
        """Seconds after which it is paused."""
        if isinstance(asked, Cutting) or asked.engine not in self._slow:
            return float("inf")
        return min(max(TURN, TURNS * self._budget.timeout), self._budget.left())

    def _asked_anew(self) -> Question:
        return self._question(self._beside.pop(0).engine, SEARCHING * self._budget.left())

    def _question(self, engine: str, seconds: float) -> Question:
        return Question(engine, self._topology, self._collective, self._size, seconds, cuts=False, beat=self._best)

    def hear(self, answer: Found | Refused) -> None:
        """Remembers results that can be cut, and how much latency matters."""
        if isinstance(answer, Refused):
            return
        if answer.schedule.bounds is not None:
            latency = answer.schedule.bounds.latency.seconds
            self._startups = latency > STARTUPS * answer.schedule.bounds.seconds(self._size)
            self._soon.sort(key=lambda engine: (engine in SPARED and not self._startups, self._place[engine]))
        self._best = min(self._best, answer.seconds)
        self._reached[answer.engine] = min(answer.seconds, self._reached.get(answer.engine, float("inf")))
        told = answer.engine, answer.seconds
        if answer.cut or told in self._told:
            return
        self._told.add(told)
        if answer.seconds < self._least.get(answer.engine, float("inf")):
            self._least[answer.engine] = answer.seconds
            self._uncut = [one for one in self._uncut if one.engine != answer.engine]
        if len(answer.schedule.transfers) <= MOST_TRANSFERS and busiest(answer.schedule, self._size) < self._best:
            self._uncut.append(answer)  # else cuts of it are not faster


def most_workers() -> int:
    """The number of engines that run at once."""
    return min(cores(), MOST_WORKERS)


def _ends(answer: Found | Refused, size: int) -> bool:
    """Whether no better answer is possible."""
    if isinstance(answer, Refused) or answer.schedule.bounds is None:
        return False
    return answer.seconds <= CLOSE * answer.schedule.bounds.seconds(size)

"""Engine `auto`: runs all suitable engines, several at once, and keeps the schedule with the shortest simulated time.

    at once     forest ──▶ greedy ──▶ hierarchy ──▶ greedy in slices ──▶ ..    quick engines, then cuts of their
                pipeline ──────▶ teccl ─────────────▶ pipeline ───▶ ..         results; beside them, slow engines
    simulated    12 us      10 us        9 us      8 us                        at the size, cut as the executor cuts
    kept                                           greedy

Each engine runs in its own process (workers.py), so a stuck one delays nobody, and a late one is ended. Slow engines
and cuts take turns: they are paused and resumed, and what leads goes on beside the others. The search ends when a
schedule is as fast as the bounds allow, when all engines have answered, or when time is up; then the best schedule so
far is returned. Its proof lists the engines and their results.

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
from syntony.synth.engines.workers import Cutting, Found, Question, Refused, Workers, cores, seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import AGREED
from syntony.topologies.topology import Topology

__all__ = ["Found", "Refused", "attempts", "candidates", "run", "seconds_at"]

COMPARED = "fastest simulated"
"""The beginning of a proof that proves nothing, but says what was compared."""
CLOSE = 1.01
"""A schedule within 1 % of the bounds ends the search."""
SWITCHES = "in_network"
"""The argument that allows switches to add and copy."""
PROMPT = (SWITCHES, "forest", "flow", "one_shot", "greedy", "bfb")
"""Engines that run first; on networks of up to SMALL ranks, in this process."""
SMALL = 48
"""Ranks of a network so small that workers take longer to start than quick engines to answer."""
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
"""Where order matters, results that promise at most this many times the seconds of the best are cut before a second
slow engine begins."""
NEARLY = 1.01
"""What promises at most this many times the seconds of something else promises no less."""
NEAR = 1.1
"""Results that promise at most this many times the seconds of the best are cut before any slow engine begins or goes
on, but the best one."""
SEARCHING = 0.9
"""The part of a quick engine's time for its search; the rest is for the work after it (proof, bounds, simulation). Slow
ones report what they find in between, so they search to the end."""
TURN, LEAST_TURN = 0.25, 1.0
"""The turn of a slow engine, or of cuts: this part of the time limit, but at least so many seconds. It is to begin, and
to have a first result."""
SCRAP = 0.5
"""A turn lasts to the end if this part of another one, or less, would be left: that would be too short for a result."""
END = 0.05
"""Seconds by which the last turn is longer than the time that is left: an engine whose search ends with it answers."""
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
                        workers.resume(more.name, agenda.turn(more))
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
    """The turn of a question that is paused."""

    name: str


class _Agenda:
    """What remains to be asked, as `next` says: quick engines, then cuts of all results; beside both, slow ones.

    A result is cut before its end once nothing else waits; what promises to be near is cut earlier, see `_cut_near`.
    """

    def __init__(
        self, topology: Topology, collective: Collective, size: int, budget: Budget, candidates: Sequence[Candidate]
    ) -> None:
        self._topology, self._collective, self._size, self._budget = topology, collective, size, budget
        self._place = {candidate.engine: number for number, candidate in enumerate(candidates)}
        self._soon = [candidate.engine for candidate in candidates if candidate.takes == "little"]
        self._beside = [candidate.engine for candidate in candidates if candidate.takes != "little"]
        self._slow = frozenset(self._beside)
        self._turn = max(TURN * budget.timeout, LEAST_TURN)
        self._first = True
        self._startups = False  # whether latency matters at this size, as far as answers tell
        self._best = float("inf")  # seconds of the best of all answers
        self._reached: dict[str, float] = {}  # by engine, seconds of its best answer
        self._least: dict[str, float] = {}  # by engine, seconds of its best answer before it is cut
        self._uncut: list[Found] = []  # such results until they are cut, and later ones that are slower before that
        self._cut_of: dict[str, str] = {}  # by name of what cuts results, whose they are
        self._began: dict[str, float] = {}  # likewise, seconds of the best one when their turn began
        self._hoped: dict[str, float] = {}  # likewise, seconds that they may come near to
        self._told: list[Found] = []  # all results before they are cut, each once

    def prompt(self) -> Iterator[Question]:
        """Questions for this process, on a small network: they are answered before a worker has started."""
        while self._soon and self._soon[0] in PROMPT:
            yield self._quick_question()

    def beside(self, most: int) -> Question | None:
        """The first slow question, if of `most` workers one is free while the others run."""
        return self._slow_question() if self._beside and most > 1 else None

    def next(
        self, busy: Sequence[Question | Cutting], most: int, paused: Mapping[str, float] = NOBODY
    ) -> Question | Cutting | Resumed | None:
        """The next question, if of `most` workers those are busy with others; None if there is none (for now).

        `paused`: by name, questions whose turn is over, and the seconds that they took so far.
        """
        at_work = {one.engine for one in busy if isinstance(one, Question)}
        slow = len(at_work & self._slow)
        several = most > 1
        resting = {name: spent for name, spent in paused.items() if name in self._slow}
        return (
            self._cuts_again(paused)
            or (self._leader_again(resting, at_work) if several else None)
            or self._cut_near(at_work, paused, NEAR)
            or (self._slow_one(resting) if several and slow < 1 else None)
            or (self._cut_near(at_work, paused, HOPEFUL) if self._startups else None)
            or (self._slow_one(resting) if several and slow < 2 and self._second_in_turn() else None)
            or (self._quick_question() if self._soon else None)
            or self._cut(at_work, paused)
            or self._slow_one(paused)
        )

    def _cuts_again(self, paused: Collection[str]) -> Resumed | None:
        """Cuts of the engine that has the best result of all go on, and, once all slow engines have begun, of one that
        is near and became faster in their last turn; others wait until nothing else does."""
        reached = {name: self._reached[self._cut_of[name]] for name in paused if name in self._cut_of}
        best = min(self._reached.values(), default=float("inf"))
        worth = [name for name, seconds in reached.items() if seconds == best]
        if not self._beside:
            worth += self._gaining(paused)
        return self._again(min(worth, key=lambda name: reached[name])) if worth else None

    def _gaining(self, paused: Collection[str]) -> list[str]:
        """Cuts that are near to the best result and became faster in their last turn."""
        best = min(self._reached.values(), default=float("inf"))
        return [
            name
            for name in paused
            if name in self._cut_of
            and self._reached[self._cut_of[name]] < self._began[name]
            and self._reached[self._cut_of[name]] <= NEAR * best
        ]

    def _again(self, cuts: str) -> Resumed:
        """Another turn of cuts."""
        self._began[cuts] = self._reached[self._cut_of[cuts]]
        return Resumed(cuts)

    def _leader_again(self, paused: Collection[str], at_work: Collection[str]) -> Resumed | None:
        """Of the slow engines that have not ended, the one with the best result goes on; where latency matters and
        another result is near, not before all slow ones have begun."""
        slow = [one for one in self._reached if one in self._slow and (one in paused or one in at_work)]
        leader = min(slow, key=lambda engine: self._reached[engine], default="")
        if leader not in paused:
            return None
        others = (seconds for engine, seconds in self._reached.items() if engine != leader)
        ahead = min(others, default=float("inf")) > NEAR * self._reached[leader]
        return Resumed(leader) if ahead or not self._beside or not self._startups else None

    def _cut_near(self, at_work: Collection[str], paused: Collection[str], times: float) -> Cutting | Resumed | None:
        """Results that promise at most this many times the seconds of the best are cut, once the quick engines that
        come before the next slow one have answered; not while their engine is at work."""
        if self._beside and not self._slow_is_next():
            return None
        near = (one for one in self._uncut if one.engine not in at_work and one.hoped <= times * self._best)
        return self._cut(at_work, paused) if any(near) else None

    def _slow_one(self, paused: Mapping[str, float]) -> Question | Resumed | None:
        """Slow ones that have not begun, in their order, as long as there is time for a result; then what took the
        least time goes on."""
        if self._beside and not (paused and self._budget.left() < max(LEAST_TURN, SCRAP * self._turn)):
            return self._slow_question()
        return Resumed(min(paused, key=lambda name: paused[name])) if paused else None

    def _second_in_turn(self) -> bool:
        """Whether a slow engine is to begin beside another: before quick ones only where latency matters."""
        return bool(self._beside) and self._slow_is_next() and (self._startups or not self._soon)

    def _slow_is_next(self) -> bool:
        """Whether the next slow engine stands before all quick ones that are left."""
        return not self._soon or self._place[self._beside[0]] < self._place[self._soon[0]]

    def _cut(self, at_work: Collection[str], paused: Collection[str] = ()) -> Cutting | Resumed | None:
        """What promises most is cut first, but last those of engines that are at work: they may find better ones. Cuts
        that have been gaining go on before those of what promises no more."""
        self._uncut = [one for one in self._uncut if one.busy < self._best]
        if not self._uncut:
            return None
        best = min(self._uncut, key=lambda one: (one.engine in at_work, one.hoped))
        gaining = min(self._gaining(paused), key=lambda name: self._hoped[name], default=None)
        if gaining is not None and self._hoped[gaining] <= NEARLY * best.hoped:
            return self._again(gaining)
        self._uncut.remove(best)
        cutting = Cutting(best, self._size, self._budget.left(), self._best, self._budget.chunks)
        self._cut_of[cutting.name] = best.engine
        self._began[cutting.name], self._hoped[cutting.name] = best.seconds, best.hoped
        return cutting

    def _quick_question(self) -> Question:
        left, self._first = self._budget.left() * (1.0 if self._first else PATIENCE), False
        return self._question(self._soon.pop(0), SEARCHING * left)

    def _slow_question(self) -> Question:
        return self._question(self._beside.pop(0), self._budget.left())

    def _question(self, engine: str, seconds: float) -> Question:
        problem = (self._topology, self._collective, self._size)
        return Question(engine, *problem, seconds, cuts=False, beat=self._best, most=self._budget.chunks)

    def turn(self, asked: Question | Cutting | Resumed) -> float:
        """Seconds after which it is paused."""
        if isinstance(asked, Question) and asked.engine not in self._slow:
            return float("inf")
        turn, left = self._turn, self._budget.left()
        return turn if left > (1 + SCRAP) * turn else left + END

    def hear(self, answer: Found | Refused) -> None:
        """Remembers results that can be cut, and how much latency matters."""
        if isinstance(answer, Refused):
            return
        if answer.schedule.bounds is not None:
            latency = answer.schedule.bounds.latency.seconds
            self._startups = latency > STARTUPS * answer.schedule.bounds.seconds(self._size)
            self._soon.sort(key=lambda engine: (engine in SPARED and not self._startups, self._place[engine]))
        self._best = min(self._best, answer.seconds)
        if self._repeats(answer):
            return
        self._reached[answer.engine] = min(answer.seconds, self._reached.get(answer.engine, float("inf")))
        if answer.cut:
            return
        self._told.append(answer)
        if answer.seconds < self._least.get(answer.engine, float("inf")):
            self._least[answer.engine] = answer.seconds
            self._uncut = [one for one in self._uncut if one.engine != answer.engine]
        if len(answer.schedule.transfers) <= MOST_TRANSFERS and answer.busy < self._best:
            self._uncut.append(answer)  # else cuts of it are not faster

    def _repeats(self, answer: Found) -> bool:
        """Whether the schedule is known: an engine tells its result again at its end, and slow ones try the results of
        quick ones. It is neither cut twice, nor does its second engine lead by it."""
        near = (one for one in self._told if abs(one.seconds - answer.seconds) <= AGREED * one.seconds)
        return not answer.cut and any(one.schedule.transfers == answer.schedule.transfers for one in near)


def most_workers() -> int:
    """The number of engines that run at once."""
    return min(cores(), MOST_WORKERS)


def _ends(answer: Found | Refused, size: int) -> bool:
    """Whether no better answer is possible."""
    if isinstance(answer, Refused) or answer.schedule.bounds is None:
        return False
    return answer.seconds <= CLOSE * answer.schedule.bounds.seconds(size)

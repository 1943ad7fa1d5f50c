"""Searches the fastest layout that fits into memory.

    all candidates --forecast, neighbours of the best first, then the best within boxes--> the best of each tp x ..
        --wires of the topology--> forecast again
        --simulated, best forecast first, forecasts corrected by earlier errors of their kind, until none is better or
        time is up--> the fastest
        --policies in turn on it, as long as there is time--> its plan

A forecast is within some per cent of the simulation unless lanes interfere on one link, which only a policy can avoid.
So each layout is simulated under two cheap policies, and the fastest under more. As in Alpa (OSDI 2022) the search goes
from the outer choice, who communicates with whom, to the inner ones; as in Galvatron (VLDB 2023) it drops layouts that
exceed memory before it considers time. Unlike both it is exhaustive in the outer choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random
from time import process_time

from syntony.base.command import UserError
from syntony.base.wording import rounded_size
from syntony.overlap.layouts.forecast import Forecast, Forecaster
from syntony.overlap.layouts.memory import needed
from syntony.overlap.layouts.space import Candidate, Question, candidates, nearer
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.simulation import Timeline, simulate
from syntony.overlap.step.cost import Cost, Wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.models import Form, layers_of

KNOBS = (
    "tp",
    "grid",
    "cp",
    "pp",
    "ep",
    "dedup",
    "relay",
    "zero",
    "replicas",
    "secondary",
    "schedule",
    "batch",
    "recompute",
)
CHEAP = ("fifo", "serial")
MORE = ("dear", "bytescheduler", "breadth_first", "dualpipe", "need")
_SPREAD = 100  # layouts that are also tried with replicas and secondary shards
_TOLERANCE = 1.2  # of a forecast: a layout this much slower than the best simulated one is excluded

Costs = Callable[[Layout], Cost]
"""Costs of a layout's Ops."""


@dataclass(frozen=True)
class Choice:
    """A simulated layout. memory: bytes of the device that needs most; batch: sequences of a microbatch."""

    layout: Layout
    batch: int
    forecast: Forecast
    timeline: Timeline
    memory: float

    @property
    def seconds(self) -> float:
        return self.timeline.seconds

    @property
    def policy(self) -> str:
        return self.timeline.plan.policy


@dataclass(frozen=True)
class Reason:
    """The best layout with another value of a knob, and why it is worse.

    seconds, chosen   forecasts of it and of the chosen layout
    part, more        the entry of PARTS that grows most, and by how many seconds
    memory            bytes that it needs, if it does not fit; else None
    """

    knob: str
    value: object
    seconds: float
    chosen: float
    part: str
    more: float
    memory: float | None


@dataclass(frozen=True)
class Found:
    """choices: the fastest first; tried: layouts forecast, and the number that fit; reasons: about choices[0]."""

    choices: tuple[Choice, ...]
    tried: int
    fitting: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class _Guess:
    candidate: Candidate
    forecast: Forecast

    @property
    def shape(self) -> tuple[int, ...]:
        layout = self.candidate.layout
        return layout.tp, layout.side, layout.cp, layout.pp, layout.ep

    @property
    def kind(self) -> tuple[object, ...]:
        """The same for layouts whose lanes interfere in the same way."""
        layout = self.candidate.layout
        return (
            layout.zero,
            layout.replicas > 1,
            layout.secondary > 1,
            layout.schedule,
            layout.grid,
            layout.cp > 1,
            layout.ep > 1,
        )


def search(
    asked: Question, rough: Costs, exact: Costs | None = None, seconds: float = 60.0, shapes: int = 24,
    among: Callable[[Candidate], bool] = lambda candidate: True, policies: Sequence[str] = CHEAP,
    more: Sequence[str] = MORE, most: int | None = None,
) -> Found:  # fmt: skip
    """Raises UserError if no layout fits, naming the one that needs least.

    rough     fast costs, for all layouts
    exact     costs for the best few; None: the same
    seconds   of one core, as in the search of policies
    shapes    number of best combinations of tp (in a line or a grid) x cp x pp x ep that get exact costs
    among     candidates that may be chosen
    policies  for the simulation of each layout; and `more` for the fastest layout
    most      number of layouts simulated; with infinite `seconds`, the result is the same everywhere
    """
    deadline = process_time() + seconds

    def before_end(share: float) -> float:
        """When this share of the time is left."""
        return deadline - share * seconds if seconds < float("inf") else deadline

    forecasters = _Forecasters(asked)
    wanted = [one for one in candidates(asked) if among(one)]
    guesses = forecasters.best_first(wanted, rough, before_end(0.7))
    fitting = sorted(_fitting(asked, guesses), key=lambda guess: guess.forecast.seconds)
    if not fitting:
        raise _too_large(asked, guesses)
    spread = [one for guess in fitting[:_SPREAD] for one in nearer(asked, guess.candidate) if among(one)]
    guesses += forecasters.guesses(dict.fromkeys(spread), rough, deadline) if spread else []
    fitting = sorted(_fitting(asked, guesses), key=lambda guess: guess.forecast.seconds)
    if exact is not None:
        best = list(dict.fromkeys(guess.shape for guess in fitting))[:shapes]
        members: dict[tuple[int, ...], list[Candidate]] = {shape: [] for shape in best}
        for guess in guesses:
            if guess.shape in members:
                members[guess.shape].append(guess.candidate)
        again = list[_Guess]()
        for shape in best:
            if again and process_time() > before_end(0.5):
                break
            again += forecasters.guesses(members[shape], exact, deadline)
        guesses = again
        fitting = sorted(_fitting(asked, again), key=lambda guess: guess.forecast.seconds)
    costs = exact or rough
    choices = list[Choice]()
    bias: dict[tuple[object, ...], float] = {}  # by kind of layout: simulated over forecast, for the last one

    def expected(guess: _Guess) -> float:
        return guess.forecast.seconds * bias.get(guess.kind, 1.0)

    waiting = list(fitting)
    while waiting:
        guess = min(waiting, key=expected)
        late = process_time() > before_end(0.25) or (most is not None and len(choices) >= most * len(policies))
        least = min((choice.seconds for choice in choices), default=float("inf"))
        if choices and (late or expected(guess) > least * _TOLERANCE):
            break
        waiting.remove(guess)
        found = [forecasters.simulated(guess, costs, name) for name in policies]
        bias[guess.kind] = min(choice.seconds for choice in found) / guess.forecast.seconds
        choices += found
        if all(choice.memory > asked.memory for choice in choices):
            choices.clear()
    choices = [choice for choice in choices if choice.memory <= asked.memory]
    if not choices:
        raise _too_large(asked, guesses)
    choices.sort(key=lambda choice: choice.seconds)
    first = next(guess for guess in fitting if guess.candidate == Candidate(choices[0].layout, choices[0].batch))
    for name in more:
        if process_time() > before_end(0.2):
            break
        try:
            choices.append(forecasters.simulated(first, costs, name))
        except UserError:
            continue  # the policy does not apply to this step
    choices = sorted((one for one in choices if one.memory <= asked.memory), key=lambda choice: choice.seconds)
    kept = {(one.layout, one.batch): one for one in reversed(choices)}  # the fastest of each layout
    ranked = tuple(sorted(kept.values(), key=lambda choice: choice.seconds))
    return Found(ranked, len(guesses), len(fitting), tuple(_reasons(asked, ranked[0], guesses)))


class _Forecasters:
    """Layers and forecasters by what they depend on."""

    def __init__(self, asked: Question) -> None:
        self._asked = asked
        self._known: dict[tuple[object, ...], tuple[tuple[LayerSpec, ...], Forecaster]] = {}
        self._costs: dict[tuple[object, ...], Cost] = {}

    def guesses(self, wanted: Iterable[Candidate], costs: Costs, until: float) -> Iterator[_Guess]:
        """Each layout without recomputation or, if it does not fit, both ways. At least one; more until that time."""
        for number, candidate in enumerate(wanted):
            if number and process_time() > until:
                return
            for again in (False, True):
                layout = replace(candidate.layout, recompute=again)
                forecast = self._forecaster(candidate)[1].forecast(layout, *self._cost(layout, costs))
                yield _Guess(Candidate(layout, candidate.batch), forecast)
                if forecast.memory <= self._asked.memory:
                    break

    def best_first(self, wanted: Sequence[Candidate], costs: Costs, until: float) -> list[_Guess]:
        """All, if there is time: first those that differ in one knob from the best so far, and as many others."""
        lines: dict[tuple[object, ...], list[int]] = {}
        knobs = [_knobs(one) for one in wanted]
        for number, values in enumerate(knobs):
            for knob in range(len(values)):
                lines.setdefault((knob, *values[:knob], *values[knob + 1 :]), []).append(number)
        found, heap, left = list[_Guess](), list[tuple[float, float, int]](), dict.fromkeys(range(len(wanted)))

        def look(number: int) -> None:
            del left[number]
            mine = list(self.guesses([wanted[number]], costs, until))
            best = min(mine, key=lambda guess: guess.forecast.memory)
            too_much = max(0.0, best.forecast.memory - self._asked.memory)
            heappush(heap, (too_much, best.forecast.seconds, number))
            found.extend(mine)

        others = list(range(len(wanted)))
        Random(0).shuffle(others)
        while left and (not found or process_time() < until):
            while others[-1] not in left:
                others.pop()
            look(others[-1])
            values = knobs[heappop(heap)[2]]
            near = (lines[knob, *values[:knob], *values[knob + 1 :]] for knob in range(len(values)))
            for number in sorted({number for line in near for number in line} & left.keys()):
                if process_time() < until:
                    look(number)
        return found

    def simulated(self, guess: _Guess, costs: Costs, policy: str) -> Choice:
        """Raises UserError if the policy does not apply to the step."""
        layout, batch = guess.candidate
        layers = self._forecaster(guess.candidate)[0]
        cost = costs(layout)
        timeline = simulate(planned(chain_of(policy), generate(layers, layout), cost), cost)
        return Choice(layout, batch, guess.forecast, timeline, max(needed(timeline, self._asked.element).values()))

    def _forecaster(self, candidate: Candidate) -> tuple[tuple[LayerSpec, ...], Forecaster]:
        layout, asked = candidate.layout, self._asked
        experts = layout.ep, layout.dedup, layout.relay
        key = (layout.tp, layout.side, layout.cp, *experts, layout.attention, layout.traders, candidate.batch)
        if key not in self._known:
            layers = layers_of(asked.model, layout, Form(candidate.batch, asked.element))
            self._known[key] = layers, Forecaster(layers, asked.element)
        return self._known[key]

    def _cost(self, layout: Layout, costs: Costs) -> tuple[Cost, Mapping[str, Wire]]:
        key = (costs, *layout.sizes.values())
        if key not in self._costs:
            self._costs[key] = costs(layout)
        return self._costs[key], self._costs[key].wires


def _knobs(one: Candidate) -> tuple[object, ...]:
    """The knobs of a candidate; its neighbours differ in one of these."""
    layout = one.layout
    return (
        layout.tp, layout.grid, layout.cp, layout.pp, layout.ep, (layout.attention, layout.traders), layout.zero,
        layout.sizes["dp"] if layout.replicas > 1 else 0, layout.secondary,
        (layout.schedule, layout.loops), one.batch,
    )  # fmt: skip


def _fitting(asked: Question, guesses: Iterable[_Guess]) -> list[_Guess]:
    return [guess for guess in guesses if guess.forecast.memory <= asked.memory]


def _too_large(asked: Question, guesses: Sequence[_Guess]) -> UserError:
    if not guesses:
        return UserError(
            f"{asked.ranks} ranks cannot share the model and {asked.sequences} sequences evenly; another number of "
            "ranks, or of sequences in a step, can"
        )
    least = min(guesses, key=lambda guess: guess.forecast.memory)
    return UserError(
        f"no layout of {asked.ranks} ranks fits {rounded_size(int(asked.memory))} a device; "
        f"the least, {rounded_size(int(least.forecast.memory))}, needs {named(least.candidate)}"
    )


def named(candidate: Candidate) -> str:
    """As --layout and --batch take it: `dp=16,tp=8,pp=8,schedule=interleaved,loops=2,microbatches=12 --batch 1`."""
    plain, layout = Layout(), candidate.layout
    parts = [
        f"{name}={value if not isinstance(value, bool) else 'on' if value else 'off'}"
        for name, value in vars(layout).items()
        if value != getattr(plain, name) or name == "microbatches"
    ]
    return f"{','.join(parts)} --batch {candidate.batch}"


def _reasons(asked: Question, best: Choice, guesses: Sequence[_Guess]) -> Iterator[Reason]:
    """For each knob: the fastest layouts with its other values, the nearest values first."""

    def value(layout: Layout, batch: int, knob: str) -> object:
        if knob == "schedule":
            return f"{layout.schedule} {layout.loops}" if layout.loops > 1 else layout.schedule
        return batch if knob == "batch" else getattr(layout, knob)

    for knob in KNOBS:
        chosen = value(best.layout, best.batch, knob)
        others: dict[object, _Guess] = {}
        for guess in sorted(guesses, key=lambda guess: (guess.forecast.memory > asked.memory, guess.forecast.seconds)):
            other = value(*guess.candidate, knob)
            if other != chosen and others.setdefault(other, guess) is guess and len(others) == 2:
                break
        for other, guess in others.items():
            grown = {part: took - best.forecast.parts[part] for part, took in guess.forecast.parts.items()}
            part = max(grown, key=grown.__getitem__)
            over = guess.forecast.memory if guess.forecast.memory > asked.memory else None
            yield Reason(knob, other, guess.forecast.seconds, best.forecast.seconds, part, grown[part], over)

"""Table `contest`: engine `auto` against every engine asked by name, with the same budget, on irregular networks.

A case is a network, a collective and a size; there are 960 (30 x 8 x 4). Only some of them: those of `--network`,
and of them `--cases 1-60`, in the order of the seed. With `--results FILE`, what was measured is kept there, and the
next run goes on with the cases that are missing. Slices can be measured at once, each with a file of its own; a run
with all their lines in one file shows the whole table:

    cases      drawn in the order of the seed        1  2  3  4  5  6  ..
    FILE       one JSON object per line, per case    1  2  3              a run that goes on begins at 4

Where `auto` is within 1 % of the bound, no engine can beat it by more, and none is asked. Budgets are of processor
time: what `auto` asks at once counts as if each had a processor to itself (engines/workers.py). Solvers of others,
which know wall clock alone, get longer limits on a busy machine (base/deadline.py).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from syntony.base.arguments import count
from syntony.base.command import UserError
from syntony.base.wording import bytes_of
from syntony.benchmarks.synthesis.by_auto import by_auto
from syntony.benchmarks.synthesis.networks.irregular import NETWORKS, random_network
from syntony.benchmarks.tables import Part, Row, Table
from syntony.synth.engines import auto
from syntony.synth.engines.engine import OutOfTimeError
from syntony.synth.engines.registry import ENGINES
from syntony.synth.engines.workers import Found, Question, Workers
from syntony.synth.model.collective import KINDS, Collective
from syntony.topologies.topology import Topology

SIZES = (16 << 10, 1 << 20, 64 << 20, 1 << 30)
DRAWN = 30 - len(NETWORKS)
"""Networks beside the named ones, `random_network(0)`, .."""
CLOSE = 1.01
"""Nobody may be faster than `auto` by more."""
MEDIAN = {1 << 20: 0.15, 64 << 20: 0.05, 1 << 30: 0.05}
HIGH = {64 << 20: 0.20, 1 << 30: 0.20}
"""Goals for the gap to the bound at a size: median, and 95th percentile."""


@dataclass(frozen=True)
class Case:
    """`network`: a name in NETWORKS, or the seed of a random one."""

    network: str
    kind: str
    size: int

    def problem(self) -> tuple[Topology, Collective]:
        """What is to be solved."""
        named = NETWORKS.get(self.network)
        topology = named() if named else random_network(int(self.network))
        return topology, Collective.make(self.kind, topology.ranks)


@dataclass(frozen=True)
class Result:
    """Simulated seconds: of `auto`, of the fastest engine alone (where one was asked), and the bound at that size."""

    case: Case
    engine: str
    seconds: float
    bound: float
    rival: str = ""
    rival_seconds: float = 0.0

    @property
    def gap(self) -> float:
        """Above the bound; 0 where nothing moves."""
        return self.seconds / self.bound - 1 if 0 < self.bound < float("inf") else 0.0

    @property
    def beaten(self) -> bool:
        """Whether an engine alone is faster by more than is allowed."""
        return bool(self.rival) and self.seconds > CLOSE * self.rival_seconds


def every_case() -> list[Case]:
    """All of them, in the table's order."""
    networks = [*NETWORKS, *map(str, range(DRAWN))]
    return [Case(network, kind, size) for network in networks for kind in KINDS for size in SIZES]


def measured(case: Case, budget: float) -> Result:
    """Asks `auto`, then every engine that may be faster, each with so much processor time, one after another."""
    topology, collective = case.problem()
    try:
        best, _ = by_auto(topology, collective, case.size, budget)
    except OutOfTimeError:
        result = Result(case, "(no answer)", float("inf"), float("inf"))
    else:
        assert best.schedule.bounds is not None
        result = Result(case, best.engine, best.seconds, best.schedule.bounds.seconds(case.size))
        if result.seconds <= CLOSE * result.bound:
            return result
    fastest: Found | None = None
    for name in (engine.name for engine in ENGINES if engine.name not in ("auto", auto.SWITCHES)):
        with Workers(1, processor=True) as workers:  # new ones, which have yet to import solvers, as those of auto
            workers.ask(Question(name, topology, collective, case.size, budget))
            while workers.busy:
                for answer in workers.answers():
                    if isinstance(answer, Found) and (fastest is None or answer.seconds < fastest.seconds):
                        fastest = answer
    return replace(result, rival=fastest.engine, rival_seconds=fastest.seconds) if fastest else result


def kept(path: Path) -> dict[Case, Result]:
    """The results in a file. Raises UserError where a line is not one."""
    results = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        try:
            fields = json.loads(line)
            result = Result(**{**fields, "case": Case(**fields["case"])})
        except (ValueError, TypeError, KeyError):
            raise UserError(f"{path}:{number}: no result of this table; choose another file for --results") from None
        results[result.case] = result
    return results


def _rows(
    cases: Sequence[Case], budget: float, path: Path | None, measure: Callable[[Case, float], Result]
) -> Iterator[Row]:
    known = kept(path) if path else {}
    for case in cases:
        result = known.get(case)
        if result is None:
            result = measure(case, budget)
            if path:
                with path.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
        yield _row(result)


@dataclass(frozen=True)
class _Told(Row):
    result: Result | None = None


def _row(result: Result) -> _Told:
    case = result.case
    rival = f"{result.rival_seconds * 1e6:.4g}" if result.rival else ""
    cells = (
        case.network, case.kind, bytes_of(case.size), result.engine, f"{result.seconds * 1e6:.4g}",
        f"{result.gap:.1%}", result.rival, rival,
    )  # fmt: skip
    return _Told(
        cells, f"{result.seconds / result.rival_seconds:.3f} times as long" if result.beaten else "", result=result
    )


def _closing(rows: Sequence[_Told]) -> list[str]:
    """What the rows say together, per size."""
    results = [row.result for row in rows if row.result]
    lines = ["", f"{len(results)} cases, {sum(result.beaten for result in results)} beaten by more than 1 %"]
    for size in SIZES:
        gaps = [result.gap for result in results if result.case.size == size]
        if len(gaps) < 2:
            continue
        middle, high = median(gaps), quantiles(gaps, n=20, method="inclusive")[-1]
        missed = [
            f"{word} above {goal:.0%}"
            for word, value, goal in (("median", middle, MEDIAN.get(size)), ("p95", high, HIGH.get(size)))
            if goal is not None and value > goal
        ]
        told = f"  MISSED: {', '.join(missed)}" if missed else ""
        lines.append(f"gap at {bytes_of(size)}: median {middle:.1%}, p95 {high:.1%}, of {len(gaps)}{told}")
    return lines


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--network", action="append", choices=[*NETWORKS, *map(str, range(DRAWN))], help="only this one; repeatable"
    )
    parser.add_argument("--cases", type=_slice, default=slice(None), metavar="A-B", help="only these, numbered from 1")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which cases are drawn (default: 1)")
    parser.add_argument(
        "--budget",
        type=float,
        default=4.0,
        metavar="SECONDS",
        help="of processor time, for auto and each engine (default: 4)",
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="store results in this file, and measure only cells that it lacks"
    )


def _slice(text: str) -> slice:
    first, _, last = text.partition("-")
    begin, end = count(first), count(last or first)
    if begin > end:
        raise argparse.ArgumentTypeError(f"'{text}' ends before it begins; write '{end}-{begin}'")
    return slice(begin - 1, end)


def _parts(options: argparse.Namespace) -> list[Part]:
    cases = every_case()
    random.Random(options.seed).shuffle(cases)
    cases = [case for case in cases if not options.network or case.network in options.network][options.cases]
    return [
        Part(
            f"{len(cases)} cases (seed {options.seed}), {options.budget:g} processor s for auto, and for each engine",
            (
                ("network", -10), ("collective", -14), ("size", 6), ("auto by", -16), ("us", 10), ("gap", 7),
                ("fastest alone", -13), ("us", 10),
            ),
            partial(_rows, cases, options.budget, options.results, measured),
            _closing,
        )
    ]  # fmt: skip


TABLE = Table("contest", "engine auto against every engine alone, on irregular networks", _parts, _configure)

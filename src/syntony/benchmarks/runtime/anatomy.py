"""Table `anatomy`: where the time of a collective on one host goes, phase by phase, beside what it takes.

Phases follow from the runtime's way (csrc/core/one_host/shared_way.hpp): of several the fastest, here by the model,
there as measured (agreed_way.hpp). What they cost follows from the rates at which the same ranks move bytes on the same
paths in the same run (measured/memory_paths.py):

    call       into the Communicator and back, with nothing to wait for (a group of one rank)
    rounds     so many times ranks wait for each other: each as long as 8 bytes take beyond the call
    show       copies for the peers to take
    fetch      the peers' bytes, from what they show or from their own buffers
    own        a rank's own block, to its output
    add        sums of what has come: into the output, with the fetch where both are one pass

    model = call + rounds + phases (times the ranks of a core, where they are more)       ratio = measured / model

A ratio far above 1 says that time goes elsewhere: into waiting, or into a cache too small for all phases together. One
below it: phases overlap.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from syntony import _core
from syntony.benchmarks.bench.contenders import Syntony
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.memory_paths import PATHS, MemoryPaths, shared_stages
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

FEW = 8
"""Bytes of a call that is nothing but a call and a round."""

_PHASES = ("call", "rounds", "show", "fetch", "own", "add")
_LINE = 64
_DEALT = (1 << 20) - 252 * _LINE  # csrc/core/one_host/staged_steps.cpp


@dataclass(frozen=True)
class Phase:
    """`pieces` of `size` bytes each, moved on a path of memory_paths. If they walk through `span` bytes of a caller's
    buffer, it may be too large for the caches that serve a piece: no faster than the path takes so many bytes."""

    name: str
    path: str
    size: int
    pieces: float
    span: int = 0


@dataclass(frozen=True)
class Work:
    """What one rank does in a collective, in one of the runtime's ways."""

    way: str
    rounds: int
    phases: tuple[Phase, ...]

    def sizes(self) -> set[int]:
        return {size for phase in self.phases for size in (phase.size, phase.span) if size}


@dataclass
class Costs:
    """What was measured of the parts: seconds. `paths`: by size of a piece, then by path."""

    call: float
    round: float
    wake: float
    paths: dict[int, dict[str, float]] = field(default_factory=dict)

    def of(self, phase: Phase) -> float:
        return phase.pieces * max(
            phase.size * self._per_byte(phase.path, size) for size in (phase.size, phase.span or phase.size)
        )

    def _per_byte(self, path: str, size: int) -> float:
        seconds = self.paths[size].get(path, math.nan)
        if path == "show":  # the runtime finds out which is faster (csrc/core/shm/shown_copy.hpp)
            seconds = min(seconds, self.paths[size]["past"])
        return seconds / size


def works_of(collective: str, ranks: int, size: int) -> tuple[Work, ...]:
    """Every way that the runtime may take. `size` in bytes of the larger buffer, out of place."""
    block = size if collective == "all_reduce" else max(1, size // ranks)
    choices = _core.shared_choices(collective, ranks, block)
    return tuple(_work_of(collective, ranks, block, way, past) for way, past in choices)


def _work_of(collective: str, ranks: int, block: int, way: str, past: bool) -> Work:
    sums = _core.COLLECTIVES[collective]["reduces"]
    name = f"{way} past" if past else way
    if way == "reference":
        shares = collective == "all_reduce"
        return Work(name, 3 if shares else 2, _by_reference(sums, ranks, block, past, shares))
    to_each = 1 if collective in ("all_reduce", "all_gather") else ranks
    others = max(1, to_each - 1)
    piece = min(block, _DEALT // others if others > 1 else _core.shared_piece_bytes(ranks))
    pieces, span = block / piece, _whole_lines(block)
    copy, take, add = ("stream", "taken", "added") if past else ("copy", "take", "add")
    if way == "two-shot":
        share = _whole_lines(piece // ranks)
        phases = (
            # All but one's own share; and its sum, which past the caches goes to the output and to the peers at once.
            Phase("show", "show", share, pieces * (ranks - 1 if past else ranks), span),
            Phase("add", add, share, pieces, span),
            Phase("fetch", take, share, pieces * (ranks - 1), span),
        )
        return Work(name, math.ceil(pieces) + 1, phases)
    piece = _whole_lines(piece)
    shown = Phase("show", "show", piece, pieces * others, span)
    if sums:
        return Work(name, math.ceil(pieces), (shown, Phase("add", add, piece, pieces, span)))
    taken = (Phase("fetch", take, piece, pieces * (ranks - 1), span), Phase("own", copy, piece, pieces, span))
    return Work(name, math.ceil(pieces), (shown, *taken))


def _by_reference(sums: bool, ranks: int, block: int, past: bool, shares: bool) -> tuple[Phase, ...]:
    if not sums:
        piece = _whole_lines(block)
        own = "stream" if past else "copy"
        return (Phase("fetch", "read", piece, ranks - 1), Phase("own", own, piece, 1))
    share = _whole_lines(block // ranks if shares else block)
    phases = (
        Phase("fetch", "read", share, ranks - 1),
        # What was read lies in cache; the sum goes to memory as a copy would.
        Phase("add", "stream" if past else "copy", share, 1),
    )
    return (*phases, Phase("fetch", "reread", share, ranks - 1)) if shares else phases


def _whole_lines(size: int) -> int:
    return max(_LINE, size // _LINE * _LINE)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    choice = sweep.chosen(options)
    return tuple(part for ranks in choice.ranks for part in _of(ranks, choice))


def _of(ranks: int, choice: sweep.Choice) -> tuple[Part, Part]:
    measured: dict[str, Any] = {}
    cores = _core.usable_cpus()

    def found() -> tuple[Costs, list[dict[str, Any]]]:
        if not measured:
            measured.update(_measure(ranks, choice))
            paths = {int(size): paths for size, paths in measured["paths"].items()}
            measured["costs"] = Costs(measured["call"], measured["round"], measured["wake"], paths)
        return measured["costs"], measured["rows"]

    def rates() -> Iterator[Row]:
        costs, _ = found()
        for size in sorted(costs.paths):
            cells = (_rate(size, costs.paths[size].get(path)) for path in PATHS)
            yield Row((size, *cells))

    def told(rows: object) -> list[str]:
        del rows
        costs, _ = found()
        return [
            f"call {1e6 * costs.call:.2f} us, a round {1e6 * costs.round:.2f} us; who sleeps wakes after"
            f" {1e6 * costs.wake:.1f} us"
        ]

    def anatomy() -> Iterator[Row]:
        costs, rows = found()
        for row in rows:
            works = works_of(row["collective"], ranks, row["size"])
            yield _row(row["collective"], row["size"], row["seconds"], works, costs, max(1.0, ranks / cores))

    paths = Part(
        f"{ranks} ranks at once, GB/s of a piece, by path", (("piece", 9), *((path, 7) for path in PATHS)), rates, told
    )
    phases = ((name, 8) for name in _PHASES)
    ends = (("model us", 9), ("measured", 9), ("ratio", 5))
    columns = (("collective", -14), ("bytes", 9), ("way", -14), *phases, *ends)
    title = f"{ranks} ranks, us of each phase and all together; measured: out of place, p50 of the slowest rank"
    return paths, Part(title, columns, anatomy)


def _rate(size: int, seconds: float | None) -> str:
    return "-" if seconds is None else f"{size / seconds / 1e9:.1f}"


def _row(collective: str, size: int, seconds: float, works: tuple[Work, ...], costs: Costs, crowd: float) -> Row:
    open_ones = [
        (work, parts) for work in works if not math.isnan(sum((parts := _parts_of(work, costs, crowd)).values()))
    ]
    work, parts = min(open_ones, key=lambda pair: sum(pair[1].values()))
    model = sum(parts.values())
    shown = (f"{1e6 * parts[name]:.2f}" if name in parts else "" for name in _PHASES)
    totals = (f"{1e6 * model:.1f}", f"{1e6 * seconds:.1f}", f"{seconds / model:.2f}")
    return Row((collective, size, work.way, *shown, *totals))


def _parts_of(work: Work, costs: Costs, crowd: float) -> dict[str, float]:
    parts: dict[str, float] = {"call": costs.call, "rounds": work.rounds * costs.round}
    for phase in work.phases:
        parts[phase.name] = parts.get(phase.name, 0.0) + costs.of(phase) * crowd
    return parts


def _measure(ranks: int, choice: sweep.Choice) -> Mapping[str, Any]:
    works = (works_of(collective, ranks, size) for collective in choice.collectives for size in choice.sizes)
    sizes = sorted(set().union(*(work.sizes() for ways in works for work in ways)))
    alone = sweep.answer_of_rank_0(1, lambda exchange: _timed(exchange, "all_reduce", (FEW,), choice.rounds)[FEW])
    stages = shared_stages(ranks, sizes[-1])

    def on_a_rank(exchange: Exchange) -> dict[str, Any]:
        communicator: Any = create_communicator(exchange, sweep.SILENCE)
        paths = MemoryPaths(exchange, communicator, stages, sizes[-1])
        costs = {size: paths.seconds(size) for size in sizes}
        wake = paths.wake()
        communicator.close()
        few = _timed(exchange, "all_reduce", (FEW,), choice.rounds)[FEW]
        rows = []
        for collective in choice.collectives:
            seconds = _timed(exchange, collective, choice.sizes, choice.rounds)
            rows += [{"collective": collective, "size": size, "seconds": seconds[size]} for size in choice.sizes]
        return {"paths": costs, "wake": wake, "call": alone, "round": max(0.0, few - alone), "rows": rows}

    answer: dict[str, Any] = sweep.answer_of_rank_0(ranks, on_a_rank)
    return answer


def _timed(exchange: Exchange, collective: str, sizes: tuple[int, ...], rounds: int) -> dict[int, float]:
    """Seconds by size, of the slowest rank."""
    communicator: Any = create_communicator(exchange, sweep.SILENCE)
    bench, contender, found = Bench(exchange), Syntony(communicator), {}
    for size in sizes:
        effort = sweep.effort(size, rounds)
        effort = Effort(effort.iterations, effort.warmups, turns=effort.turns, average=3)
        (result,) = bench.run(sweep.case_of(collective, size, exchange.size), [contender], effort, (False,))
        assert result.out_of_place is not None
        if result.out_of_place.wrong:
            raise AssertionError(f"{collective} of {size} bytes left {result.out_of_place.wrong} wrong elements")
        found[size] = result.out_of_place.p50
    communicator.close()
    return found


TABLE = Table("anatomy", "where the time of a collective on one host goes, beside a model", _parts, sweep.configure)

"""Engine `teccl`: the schedule with the shortest simulated time for one size, alphas included.

What matters depends on the size: at a kilobyte, the latencies of the longest path and the order on slow links; at a
gigabyte, only the load of the busiest link; in between, both. So many schedules are made, each is simulated at the
size, and the fastest is kept:

    size ────────▶                                                   what is fastest
    trees by latency, patience small │ patience large, more pieces │ exact forests and flows, in many slices
                        time-expanded program, where it is small enough: its optimum, or what it had when time ran out

1. trees and paths that avoid each other's links (trees.py), one candidate per set of parameters, ordered by critical
path
   (timetable.py): milliseconds each. The first of them is always made, however little time there is, so that there is a
   schedule on a busy machine, too;
2. if bandwidth matters, the schedules of engines forest and flow, which meet the throughput bound; with
   `teccl:in_network` also those in which switches copy and add; each as it is, and, where bytes take longer than
   alphas, ordered by urgency (pipeline/list_scheduling.py);
3. the time-expanded program of Liu et al., "Rethinking Machine Learning Collective Communication as a Multi-Commodity
   Flow Problem", SIGCOMM'24, sections 3 and 4 (epochs.py): epochs, buffers at ranks, copies at ranks and none in
   switches that cannot; integer where data is copied, linear for all_to_all. Its horizon is what 1 and 2 found.

All of them work on one representative rank (`home`) per orbit (ways.py). Sums are copies in reverse
(symmetry/reversal.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType

import numpy as np

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import in_network
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, bounded
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.list_scheduling import by_urgency
from syntony.synth.engines.pipeline.slicing import LEAST_BYTES, MOST_TRANSFERS
from syntony.synth.engines.teccl.epochs import planned
from syntony.synth.engines.teccl.timetable import ENGINE, scheduled
from syntony.synth.engines.teccl.trees import Hop, Manner, Want, grow_all, wants_of
from syntony.synth.engines.teccl.ways import Ways
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

SWITCHES = "in_network"
"""The argument that allows switches to copy and add; ranks alone cannot run the result."""
PIECES = (4, 1, 2, 8)
"""Parts of a block. All manners are tried with the first number, the best of them with the others."""
PATH_PIECES = (2, 1, 4)
"""Parts of a block that is moved along paths, of which there are many more than trees; tried likewise."""
PATIENCE = (0.1, 0.3, 1.0, 3.0, 10.0)
SLACK = 0.25
"""Part of the throughput bound's seconds: trees get none, this much, or no deadline at all."""
BEST_MANNERS = 3
MOST_HOPS = 1_200
"""Manners with more hops of homes' pieces are skipped, except for whole blocks: growing them takes seconds."""
SLICES = (4, 16, 64, 256)
"""Messages that the largest chunk is cut into, tried as long as more of them help."""
ENOUGH = 1.0005
"""A schedule within this factor of the proven minimum is not improved."""
GAIN = 0.995
"""A schedule is reported before the end if it takes at most this part of the time of the last one that was."""
FIRST = Manner(1, 1.0, together=True)
"""The manner that is tried first."""
FIRST_SECONDS = 30.0
"""Seconds that the first manner may take, whatever the time limit is."""
PROGRAM_SHARE = 0.5
"""Part of the remaining time that the solver of the time-expanded program may take."""
PROGRAM_SECONDS = 2.0
"""Seconds that this solver may take, at most."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the module docstring. Blocks are cut anew. Raises EngineError, OutOfTimeError."""
    if argument not in ("", SWITCHES):
        raise EngineError(f"engine teccl takes the argument {SWITCHES} or none, not '{argument}'")
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine teccl minimizes time and takes no --steps or --rounds; use --engine sccl")
    bounds = bounds_of(topology, collective, budget.for_bounds())
    enough = ENOUGH * bounds.seconds(size)
    best: Schedule | None = None
    least, reported = _Least(), np.inf
    engines = [flow if collective.kind in flow.KINDS else forest] + ([in_network] if argument else [])
    with suppress(OutOfTimeError):
        for schedule in _candidates(topology, collective, size, budget, engines, bounds, least):
            least.latest = seconds = sliced(schedule, size, executed=not argument)[0]
            if seconds < least.seconds and budget.allows(schedule):
                if budget.better is not None and seconds <= GAIN * reported:
                    reported = seconds
                    budget.better(bounded(schedule, ENGINE, bounds))
                best, least.seconds = schedule, seconds
            if least.seconds <= enough or not budget.left():
                break
    if best is None:
        raise OutOfTimeError(
            f"engine teccl had no schedule after {max(budget.timeout, FIRST_SECONDS):g} s; a proven bound is "
            f"that none takes less than {bounds.seconds(size):.3g} s. Allow more with --timeout, or use --engine greedy"
        )
    hurried = least.seconds > enough and not budget.left()
    return _named(best, size, not argument, f"; the search ended with its {budget.timeout:g} s" if hurried else "")


def sliced(schedule: Schedule, size: int, executed: bool = False) -> tuple[float, int | None]:
    """Simulated seconds, and the slice in bytes that gives them; None: whole chunks.

    executed  only slices that executors of ranks make, or that chunks can be cut into (pipeline/slicing.py)
    """
    chunks = schedule.collective.bytes_of_chunks(size)
    lightest, largest = float(chunks.min()), float(chunks.max())
    long = executor_slice(schedule.collective.ranks)
    best: tuple[float, int | None] = (simulate(schedule, size).seconds, None)
    for slices in SLICES:
        length = int(-(-largest // slices))
        if length < 1 or (executed and length < long and lightest < LEAST_BYTES * slices):
            break
        seconds = simulate(schedule, size, slice_bytes=length).seconds
        if seconds >= best[0]:
            break
        best = (seconds, length)
    return best


@dataclass
class _Least:
    """Simulated seconds of the best schedule so far, which are the horizon of a program, and of the latest one."""

    seconds: float = np.inf
    latest: float = np.inf


@dataclass(frozen=True, eq=False)
class _Half:
    """Data to be spread, and the wires to spread it over; an all_reduce has two of these."""

    topology: Topology
    ways: Ways
    wants: tuple[Want, ...]

    @staticmethod
    def of(topology: Topology, collective: Collective) -> _Half:
        ways = Ways.of(Network(topology, collective))
        return _Half(topology, ways, wants_of(ways))

    def grown(self, size: int, manner: Manner, budget: Budget) -> tuple[Hop, ...]:
        """The trees and paths that negotiate. Raises OutOfTimeError."""
        return tuple(grow_all(self.ways, self.wants, size, manner, budget))

    def kept(self, hops: Sequence[Hop], size: int, pieces: int) -> Schedule:
        """The schedule of these hops."""
        return scheduled(self.ways, self.wants, hops, size, pieces)

    @property
    def hops(self) -> int:
        """A lower bound on hops of homes per piece."""
        return sum(len(want.ranks) for want in self.wants)


Whole = Callable[[Sequence[Schedule]], Schedule]


def _halves(topology: Topology, collective: Collective) -> tuple[tuple[_Half, ...], Whole]:
    """What has to be spread, and how the whole is made from it."""
    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)

        def composed(parts: Sequence[Schedule]) -> Schedule:
            weight = parts[0].collective.chunks.weight
            cut = replace(collective, chunks=ChunkTable(np.zeros(len(weight), np.int32), weight))
            return summed_and_spread(parts[0], parts[1], cut)

        return (_Half.of(topology.reversed(), gather), _Half.of(topology, gather)), composed
    if collective.combining:
        half = _Half.of(topology.reversed(), collective.dual())
        return (half,), lambda parts: summed(parts[0], topology)
    return (_Half.of(topology, collective),), lambda parts: parts[0]


def _candidates(
    topology: Topology,
    collective: Collective,
    size: int,
    budget: Budget,
    engines: Sequence[ModuleType],
    bounds: Bounds,
    least: _Least,
) -> Iterator[Schedule]:
    """Candidate schedules: those of `engines` early, those of the program last."""
    halves, whole = _halves(topology, collective)
    known: set[tuple[int, tuple[tuple[Hop, ...], ...]]] = set()
    times: dict[Manner, float] = {}

    def grown(manner: Manner, within: Budget = budget) -> Iterator[Schedule]:
        """At most one: trees that were made before are not made again."""
        hops = tuple(half.grown(size, manner, within) for half in halves)
        if (manner.pieces, hops) in known:
            return
        known.add((manner.pieces, hops))
        yield whole([half.kept(one, size, manner.pieces) for half, one in zip(halves, hops, strict=True)])
        times[manner] = least.latest

    most = MOST_HOPS // max(1, sum(half.hops for half in halves))
    alone = all(len(want.ranks) == 1 for half in halves for want in half.wants)
    pieces = [number for number in (PATH_PIECES if alone else PIECES) if number <= max(1, most)]
    yield from grown(FIRST, Budget(timeout=max(FIRST_SECONDS, budget.left())))
    carrying = float(size * bounds.throughput.seconds_per_byte)
    for engine in engines:
        with suppress(EngineError):  # it does not support this collective or these wires
            schedule = engine.run(topology, collective, size, budget.unheard())
            yield schedule
            if carrying > bounds.latency.seconds and len(schedule.transfers) <= MOST_TRANSFERS:
                yield by_urgency(schedule, size)
    spare = SLACK * carrying
    # Paths have no branches to wait for; only their length matters.
    choices = product(PATIENCE, (True,), (None,)) if alone else product(PATIENCE, (True, False), (None, 0.0, spare))
    for patience, together, slack in choices:
        yield from grown(Manner(pieces[0], patience, together, slack))
    for manner in sorted(times, key=lambda manner: times[manner])[:BEST_MANNERS]:
        for number in pieces[1:]:
            yield from grown(replace(manner, pieces=number))
    for number in (1, 2):
        limit = min(PROGRAM_SECONDS, PROGRAM_SHARE * budget.left()) / len(halves)
        hops = [planned(half.ways, half.wants, size, number, least.seconds, limit) for half in halves]
        if all(hops):
            parts = [half.kept(found, size, number) for half, found in zip(halves, hops, strict=True)]
            yield whole(parts)


def _named(schedule: Schedule, size: int, executed: bool, end: str) -> Schedule:
    """The schedule with its bounds and its distance from them at the size. `end`: the rest of the proof."""
    bounds = bounds_of(schedule.topology, schedule.collective)
    seconds, length = sliced(schedule, size, executed)
    needed = bounds.seconds(size)
    messages = "whole chunks" if length is None else f"slices of {length} bytes"
    proof = f"simulated {seconds:.4g} s for {size} bytes in {messages}"
    if needed:
        proof += f", {100 * (seconds / needed - 1):.1f} % above the {needed:.4g} s that are proven to be needed"
    return replace(schedule, engine=ENGINE, bounds=bounds, proof=proof + end)

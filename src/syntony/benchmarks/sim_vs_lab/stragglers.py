"""One rank that is late, or slow, in the lab: all_reduce with shares to match (`two_shot`), beside the ring.

    python -m syntony.benchmarks lab stragglers [--hosts N] [--only late|slow|switch]

    late    the last rank calls when the others have had time to reduce-scatter among themselves; from its call on
    slow    its wire has a part of its bandwidth
    switch  its wire becomes slow in the midst of a job, which then says so (`Communicator.set_rates`): how many seconds
            are lost until all_reduces take as long as they do from then on

`bound` is what nobody can beat, for our bytes on these wires; `fault-free` the ring with nobody late and equal wires.
The table of the synthesizer (synthesis/stragglers.py) has the programs, more ranks, and the figures of others. Root
only, five minutes. Every result is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import median

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab.cells import Case
from syntony.benchmarks.sim_vs_lab.measurement import measure
from syntony.benchmarks.sim_vs_lab.model import goodput
from syntony.benchmarks.sim_vs_lab.switch_rank import ROUNDS, Switch
from syntony.benchmarks.synthesis.stragglers import SPEEDUP, share_of_time, slowed, unequal, usual
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.faults import parse_fault
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import DEFAULT_RATE, LabError, at_rate, spec_of
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.topologies.graph.wiring import ABSTRACT_BANDWIDTH
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

RATE = DEFAULT_RATE / 4
"""Bytes/s of a wire: 50 Mbit/s, so that two cores hold eight hosts."""
SIZE = 16 << 20
ITERATIONS = 3
SHARES = (50, 75)
"""Percent of its bandwidth that the slow rank has."""
SWITCH = 1.0
"""Goal: most seconds that a switch may take."""
CASES = ("late", "slow", "switch")
_START = 10.0
"""Seconds that ranks have from their start to their first all_reduce."""
RING, OURS = Case("ring", "all_reduce"), Case("two_shot", "all_reduce")


def _times(topology: Topology, last: float, late: float = 0.0) -> Mapping[Case, float]:
    """Median seconds of both programs, with a share for a last rank of so much of the others' rate."""
    ranks = topology.ranks
    programs: Mapping[Case, Program] = {RING: _core.build("ring", "all_reduce", ranks), OURS: unequal(ranks, last)}
    found = measure(at_rate(spec_of(topology), RATE), programs, {SIZE: ITERATIONS}, late)
    return {case: median(found.seconds[case, SIZE]) for case in programs}


def _unit(ranks: int) -> float:
    """Seconds of SIZE bytes on a wire."""
    return SIZE / float(goodput(RATE, executor_slice(ranks)))


def _least(ranks: int, percent: int) -> float:
    """The bound on an all_reduce with a rank that has so much of its bandwidth, in `_unit`s."""
    bound = bounds_of(slowed(ranks, percent), Collective.make("all_reduce", ranks)).throughput
    return float(bound.seconds_per_byte * ABSTRACT_BANDWIDTH)


def _rows(ranks: int, only: Collection[str]) -> Iterator[Row]:
    unit = _unit(ranks)
    healthy = parse(f"star:{ranks}")
    late = float(share_of_time(ranks)) * unit
    free = _times(healthy, 1.0)[RING]
    cases = []
    if "late" in only:
        cases.append(("late", f"{late:.2f} s", 1.0, _times(healthy, 0.0, late)))
    if "slow" in only:
        cases += [
            ("slow", f"{percent} %", _least(ranks, percent), _times(slowed(ranks, percent), percent / 100))
            for percent in SHARES
        ]
    for what, much, units, times in cases:
        ring, ours, least = times[RING], times[OURS], units * unit
        missed = f"less than {SPEEDUP} times the ring" if what == "late" and ring < SPEEDUP * ours else ""
        cells = (
            what, much, f"{least:.2f}", f"{ours:.2f}", f"{ring:.2f}", f"{free:.2f}",
            f"{float(usual(ranks)) * unit:.2f}", f"{ours / least:.3f}", f"{ring / ours:.2f}",
        )  # fmt: skip
        yield Row(cells, missed)


def measure_switch(ranks: int, percent: int, size: int = SIZE) -> Switch:
    """A job during which the last rank's wire falls to so much of its bandwidth. Raises LabError as `measure` does."""
    spec = at_rate(spec_of(parse(f"star:{ranks}")), RATE)
    at = _START + (ROUNDS + 2) * float(usual(ranks)) * _unit(ranks) * size / SIZE
    slow = parse_fault(f"slow rank{ranks - 1}-switch to {float(RATE * 8 * percent / 10**8):g}mbit at {at:.3f}s", spec)
    said: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="syntony-switch-") as folder, Lab(spec) as lab:
        results = Path(folder) / "results"
        words = [str(size), str(time.monotonic() + at), str(percent / 100), str(results)]
        rank = [sys.executable, "-m", "syntony.benchmarks.sim_vs_lab.switch_rank", *words]
        if lab.run(rank, [slow], write=said.append):
            raise LabError("the ranks failed\n" + b"".join(said).decode(errors="replace"))
        return Switch(**json.loads(results.read_text()))


def _switches(ranks: int) -> Iterator[Row]:
    for percent in SHARES:
        found = measure_switch(ranks, percent)
        least = _least(ranks, percent) * _unit(ranks)
        times = median(found.before), median(found.slow), found.seconds, median(found.after), least
        missed = f"more than {SWITCH:g} s" if found.seconds > SWITCH else ""
        if not found.early:
            missed = "the wire was slow before it should have been"
        yield Row((f"{percent} %", *(f"{seconds:.2f}" for seconds in times)), missed)


_COLUMNS = (
    ("rank", -4), ("by", 7), ("bound", 6), ("ours", 6), ("ring", 6), ("fault-free", 10), ("its bound", 9),
    ("x bound", 7), ("x ring", 6),
)  # fmt: skip


_SWITCH_COLUMNS = (("falls to", -8), ("before", 6), ("slow", 6), ("switch", 6), ("after", 6), ("its bound", 9))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=CASES, help="only these rows")
    parser.add_argument("--hosts", type=int, default=8, metavar="N", help="of one rank each (default: 8)")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    if options.hosts < 3:
        raise UserError(f"--hosts {options.hosts}: one is late or slow, and the others work together: at least 3")
    only = (options.only,) if options.only else CASES
    title = f"{options.hosts} hosts at {float(RATE * 8 / 10**6):g} Mbit/s, {SIZE >> 20} MiB; medians in seconds"
    if "late" in only or "slow" in only:
        yield Part(title, _COLUMNS, lambda: _rows(options.hosts, only))
    if "switch" in only:
        yield Part("A wire becomes slow in the midst of a job", _SWITCH_COLUMNS, lambda: _switches(options.hosts))


TABLE = Table("stragglers", "all_reduce with one rank late or slow, in the lab", _parts, _configure)

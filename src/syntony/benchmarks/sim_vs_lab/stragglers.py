"""One rank that is late, or slow, in the lab: all_reduce with shares to match (`two_shot`), beside the ring.

    python -m syntony.benchmarks lab stragglers [--hosts N]

    late   the last rank calls when the others have had time to reduce-scatter among themselves; from its call on
    slow   its wire has a part of its bandwidth

`bound` is what nobody can beat, for our bytes on these wires; `fault-free` the ring with nobody late and equal wires.
The table of the synthesizer (synthesis/stragglers.py) has the programs, more ranks, and the figures of others. Root
only, three minutes. Every result is checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from statistics import median

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab.cells import Case
from syntony.benchmarks.sim_vs_lab.measurement import measure
from syntony.benchmarks.sim_vs_lab.model import goodput
from syntony.benchmarks.synthesis.stragglers import SPEEDUP, share_of_time, slowed, unequal, usual
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab_spec import DEFAULT_RATE, at_rate, spec_of
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
RING, OURS = Case("ring", "all_reduce"), Case("two_shot", "all_reduce")


def _times(topology: Topology, last: float, late: float = 0.0) -> Mapping[Case, float]:
    """Median seconds of both programs, with a share for a last rank of so much of the others' rate."""
    ranks = topology.ranks
    programs: Mapping[Case, Program] = {RING: _core.build("ring", "all_reduce", ranks), OURS: unequal(ranks, last)}
    found = measure(at_rate(spec_of(topology), RATE), programs, {SIZE: ITERATIONS}, late)
    return {case: median(found.seconds[case, SIZE]) for case in programs}


def _rows(ranks: int) -> Iterator[Row]:
    unit = SIZE / float(goodput(RATE, executor_slice(ranks)))
    healthy = parse(f"star:{ranks}")
    late = float(share_of_time(ranks)) * unit
    free = _times(healthy, 1.0)[RING]
    cases = [("late", f"{late:.2f} s", 1.0, _times(healthy, 0.0, late))]
    for percent in SHARES:
        topology = slowed(ranks, percent)
        bound = bounds_of(topology, Collective.make("all_reduce", ranks)).throughput
        least = float(bound.seconds_per_byte * ABSTRACT_BANDWIDTH)
        cases.append(("slow", f"{percent} %", least, _times(topology, percent / 100)))
    for what, much, units, times in cases:
        ring, ours, least = times[RING], times[OURS], units * unit
        missed = f"less than {SPEEDUP} times the ring" if what == "late" and ring < SPEEDUP * ours else ""
        cells = (
            what, much, f"{least:.2f}", f"{ours:.2f}", f"{ring:.2f}", f"{free:.2f}",
            f"{float(usual(ranks)) * unit:.2f}", f"{ours / least:.3f}", f"{ring / ours:.2f}",
        )  # fmt: skip
        yield Row(cells, missed)


_COLUMNS = (
    ("rank", -4), ("by", 7), ("bound", 6), ("ours", 6), ("ring", 6), ("fault-free", 10), ("its bound", 9),
    ("x bound", 7), ("x ring", 6),
)  # fmt: skip


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=8, metavar="N", help="of one rank each (default: 8)")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    if options.hosts < 3:
        raise UserError(f"--hosts {options.hosts}: one is late or slow, and the others work together: at least 3")
    title = f"{options.hosts} hosts at {float(RATE * 8 / 10**6):g} Mbit/s, {SIZE >> 20} MiB; medians in seconds"
    yield Part(title, _COLUMNS, lambda: _rows(options.hosts))


TABLE = Table("stragglers", "all_reduce with one rank late or slow, in the lab", _parts, _configure)

"""A network card that goes down in the midst of an all_reduce, in the lab: hosts of one rank with two cards each.

    python -m syntony.benchmarks lab rails [--hosts 2,4]

    died      the operation itself: its bytes on the card are sent again over the other one. `least`: as if that had
              been known at once
    after     the next ones, as they were; where there are more than two hosts, the one card carries as much as two
    balanced  after `Communicator.balance_rails()`: that host adds up as much less for the others (`two_shot`)
    restored  once the card is up again, and in use again `back` seconds of all_reduces later

The bounds, of the network with the card and without it, are those of the synthesizer (synth/bounds), for our bytes on
these wires. All ranks must have the same bits, with and without the card as long as the algorithm is the same.

Published: R2CCL (arXiv 2512.25059) moves the bytes of a failed card to the others, balances what the cards carry, and
has the host with less bandwidth take a smaller part in an all_reduce; it says that training loses less than 1 %, on
H100 servers of 8 cards of InfiniBand. Ours: csrc/core/tcp/tcp_failover.cpp. Root only, two minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from statistics import median

from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab.model import goodput
from syntony.benchmarks.sim_vs_lab.rails_rank import Lost
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import DEFAULT_RATE, LabError, LabSpec, at_rate, spec_of
from syntony.lab.wires.network import ip_lines
from syntony.lab.wires.routes import routes_of
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.topologies.parse import parse

SIZE = 64_000_000
CARDS = (0, 1)
"""The first also carries the connections of the control plane."""
LEAST = 0.93
"""Goal: of the new bound's rate."""
WHEN = 0.4
"""Of an operation, when its card goes down."""


def bound_of(name: str, size: int = SIZE) -> float:
    """Seconds of an all_reduce that nobody can beat on a network of this name, whose fastest wire has DEFAULT_RATE."""
    topology = parse(name)
    fastest = max(end.rate for wire in spec_of(topology).wires for end in wire.ends)
    least = bounds_of(topology, Collective.make("all_reduce", topology.ranks)).throughput.seconds_per_byte
    return float(least * fastest) * size / float(goodput(DEFAULT_RATE, executor_slice(topology.ranks)))


def measure(network: str, card: int, after: float, size: int = SIZE) -> tuple[Lost, str]:
    """The times, and what the ranks wrote. Raises LabError where there can be no lab, and where a rank fails."""
    with tempfile.TemporaryDirectory(prefix="syntony-rails-") as folder:
        results, mending = Path(folder) / "results", Path(folder) / "mending"
        said: list[bytes] = []
        spec = at_rate(spec_of(parse(network)), DEFAULT_RATE)
        device = spec.wires_between(f"nic0.{card}-rail{card}")[0].name
        mending.write_text("\n".join(mending_of(spec, device)))
        rank = [sys.executable, "-m", "syntony.benchmarks.sim_vs_lab.rails_rank"]
        with Lab(spec) as lab:
            code = lab.run([*rank, str(size), device, str(after), str(mending), str(results)], write=said.append)
        words = b"".join(said).decode(errors="replace")
        if code:
            raise LabError(f"the ranks failed\n{words}")
        return Lost(**json.loads(results.read_text())), words


def mending_of(spec: LabSpec, device: str) -> list[str]:
    """What brings rank 0's `device` up again: the kernel has dropped its routes and neighbours."""
    host = spec.host_of[0]
    lines = ip_lines(spec, host, [route for route in routes_of(spec) if route.machine == host.id])
    lost = [line for line in lines if line.startswith(("neigh", "route")) and f"dev {device}" in line]
    return [f"link set dev {device} up", *lost]


def _rows(hosts: int) -> Iterator[Row]:
    network = f"rail:boxes={hosts},gpus=1,rails=2"
    whole = bound_of(network)
    for card in CARDS:
        least = bound_of(f"{network},without=nic0.{card}-rail{card}")
        lost, _ = measure(network, card, WHEN * whole)
        died = WHEN * whole + float(1 - Fraction(WHEN)) * least
        after, best = median(lost.after), min(median(lost.after), median(lost.balanced))
        missed = "" if lost.same else "other bits"
        if least / best < LEAST:
            missed = f"less than {LEAST} of the new bound"
        if median(lost.before) / median(lost.restored) < LEAST:
            missed = f"restored to less than {LEAST} of the rate before"
        cells = (
            hosts, card, f"{whole:.2f}", f"{median(lost.before):.2f}", f"{died:.2f}", f"{lost.during:.2f}",
            f"{least:.2f}", f"{after:.2f}", f"{median(lost.balanced):.2f}", f"{least / best:.3f}",
            f"{lost.back:.1f}", f"{median(lost.restored):.2f}",
        )  # fmt: skip
        yield Row(cells, missed)


_COLUMNS = (
    ("hosts", 5), ("card", 4), ("bound", 6), ("before", 6), ("least", 6), ("died", 6), ("new bound", 9), ("after", 6),
    ("balanced", 8), ("of new bound", 12), ("back", 5), ("restored", 8),
)  # fmt: skip


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", default="2,4", metavar="N[,..]", help="of one rank each (2,4)")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    try:
        counts = [int(word) for word in options.hosts.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 2:
        raise UserError(f"--hosts {options.hosts}: numbers of at least 2, separated by commas")
    title = f"2 cards of {float(DEFAULT_RATE * 8 / 10**6):g} Mbit/s each, {SIZE / 1e6:g} MB; medians in seconds"
    for hosts in counts:
        yield Part(title, _COLUMNS, lambda hosts=hosts: _rows(hosts))  # type: ignore[misc]


TABLE = Table("rails", "a network card that goes down in the midst of an all_reduce, in the lab", _parts, _configure)

"""Between emulated hosts: how much of raw TCP a collective gets, as root, on the wires of the lab (`syntony lab`).

    raw TCP     measured first, in the same lab: every wire's payload while all wires are busy both ways
    limit       the algorithm's: what its busiest wire carries, at that wire's raw TCP; of two rails, half on each
    simulated   the same Program on the same wires, with the runtime's slots and sockets (synth/simulation/sockets.py)
    measured    beside gloo, every result checked; median over the iterations, mean over the ranks

Goal: 97 % of the limit for what is chosen unless somebody asks for something else. Other algorithms show what that
choice is worth. All hosts share the cores of this machine: a shortfall at 500 Mbit/s may be theirs. Rates
that the machine cannot hold on all wires (--rate 10gbit) have no goal: processors are the limit, and raw TCP, which
sends zeros from one buffer, does not show what sums cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial

from syntony import _core
from syntony.base.arguments import wire_rate
from syntony.base.quantity import bit_rate
from syntony.benchmarks.runtime.measured import in_lab
from syntony.benchmarks.runtime.measured.hosts_rank import GLOO, Job, Timed
from syntony.benchmarks.sim_vs_lab.model import network_of, sockets_of
from syntony.benchmarks.sim_vs_lab.prediction import memory_rate
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, LabSpec, at_rate, spec_of
from syntony.lab.wires.ceiling import Ceiling, median_round_trip
from syntony.synth.simulation.program_simulator import executor_slice, simulate_program
from syntony.synth.simulation.sockets import Sockets
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZE = 16 << 20
GOAL = 0.97
HELD = 0.9
"""Of a wire's rate, while all are busy both ways."""


@dataclass(frozen=True)
class Network:
    """A lab, and what is measured there beside `auto` and gloo, by collective."""

    title: str
    topology: str
    rate: str
    others: Mapping[str, tuple[str, ...]]

    def at(self, rate: str) -> Network:
        """The same on wires of that rate."""
        return replace(self, rate=rate, title=self.title.replace(_spoken(self.rate), _spoken(rate)))

    def spec(self) -> LabSpec:
        return at_rate(spec_of(parse(self.topology)), bit_rate(self.rate))


def _spoken(rate: str) -> str:
    """200 Mbit/s for 200mbit."""
    return f"{rate[:-4]} {rate[-4].upper()}{rate[-3:]}/s"


_FLAT = {"all_reduce": ("ring",), "all_gather": ("direct",), "reduce_scatter": ("direct",), "all_to_all": ("direct",)}
_LEVELS = {name: ("hierarchical", *flat) for name, flat in _FLAT.items()}
NETWORKS = (
    Network("4 hosts at 200 Mbit/s", "star:4", "200mbit", {}),
    Network("4 hosts at 500 Mbit/s", "star:4", "500mbit", {}),
    Network("2 hosts of 2 ranks, one rail at 200 Mbit/s", "rail:boxes=2,gpus=2,rails=1", "200mbit", _FLAT),
    Network("2 hosts of 2 ranks, two rails at 200 Mbit/s each", "rail:boxes=2,gpus=2,rails=2", "200mbit", {}),
    Network("2 hosts of 4 ranks, one rail at 200 Mbit/s", "rail:boxes=2,gpus=4,rails=1", "200mbit", _LEVELS),
)


def _rows(network: Network, iterations: int) -> Iterator[Row]:
    jobs = [Job(name, SIZE, iterations, ("auto", *network.others.get(name, ()), GLOO)) for name in COLLECTIVES]
    spec = network.spec()
    ceilings, found = measure(spec, jobs)
    limits = Limits(spec, ceilings)
    raw = min(ceiling.together for ceiling in ceilings)
    held = raw > HELD * bit_rate(network.rate)
    for job, timings in zip(jobs, found, strict=True):
        gloo = timings[-1]
        for asked, timed in zip(job.algorithms[:-1], timings[:-1], strict=True):
            limit, simulated = limits.of(job, timed.algorithm)
            share = limit / timed.seconds
            name = timed.algorithm if asked == timed.algorithm else f"{asked}: {timed.algorithm}"
            short = asked == "auto" and held and share < GOAL
            missed = f"{share:.1%} of the limit, not {GOAL:.0%}" if short else ""
            yield Row(
                (
                    job.collective,
                    name,
                    f"{raw * 8e-6:.1f}",
                    *(f"{1e3 * seconds:.0f}" for seconds in (limit, simulated, timed.seconds)),
                    f"{share:.1%}",
                    _shares(timed.carried),
                    f"{1e3 * gloo.seconds:.0f}",
                    f"{gloo.seconds / timed.seconds:.2f}",
                ),
                missed,
            )


def _shares(carried: Sequence[int]) -> str:
    return ":".join(f"{100 * one / max(1, sum(carried)):.0f}" for one in carried)


def measure(spec: LabSpec, jobs: Sequence[Job]) -> tuple[tuple[Ceiling, ...], list[list[Timed]]]:
    """Raw TCP in the lab of `spec`, and by job what each algorithm took there.

    Raises LabError where there can be no lab, where a rank fails, and where a result is wrong.
    """
    with Lab(spec) as lab:
        ceilings = lab.ceilings()
        answer = in_lab.answer_of_rank_0(lab, "hosts_rank", [asdict(job) for job in jobs])
    found = [[Timed(**timed) for timed in row] for row in answer]
    for job, timings in zip(jobs, found, strict=True):
        for timed in timings:
            if timed.wrong:
                raise LabError(f"{job.collective} by {timed.algorithm}: {timed.wrong} elements are wrong")
    return ceilings, found


class Limits:
    """What the lab's wires allow a Program, and what the simulator expects of it there."""

    def __init__(self, spec: LabSpec, ceilings: Sequence[Ceiling]) -> None:
        message = executor_slice(spec.topology.ranks)
        latency = {ceiling.wire.id: median_round_trip(ceiling) / 2 for ceiling in ceilings}
        network = network_of(spec, message, latency, memory_rate())
        raw = {(ceiling.wire.id, ceiling.near.machine): ceiling.together for ceiling in ceilings}
        inside = 2 * spec.topology.ranks  # links between ranks and their hosts come first
        links = list(network.links[:inside])
        for wire in spec.wires:
            for near in wire.ends:
                link = network.links[len(links)]
                links.append(replace(link, bandwidth=Fraction(raw[wire.id, near.machine])))
        self._spec = spec
        self._network = Topology(network.name, network.nodes, tuple(links))
        self._sockets: Sockets = sockets_of(spec)

    def of(self, job: Job, algorithm: str) -> tuple[float, float]:
        """Seconds: the limit and the simulator's word."""
        boxes = [list(host.ranks) for host in self._spec.hosts]
        ranks = self._spec.topology.ranks
        program = _core.build(algorithm, job.collective, ranks, 0, boxes)
        found = simulate_program(program, self._network, job.size, ways=self._sockets)
        wires = found.busy[2 * ranks :]
        return float(wires.max()), found.seconds


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    wanted = options.network or [network.topology for network in NETWORKS]
    networks = [network for network in NETWORKS if network.topology in wanted]
    if options.rate:
        shapes = {network.topology: network for network in reversed(networks)}
        networks = [network.at(rate) for network in reversed(shapes.values()) for rate in options.rate]
    return tuple(
        Part(
            f"{network.title} ({network.topology}), {SIZE >> 20} MiB",
            (
                ("collective", -14),
                ("algorithm", -18),
                ("raw Mbit/s", 10),
                ("limit ms", 8),
                ("sim. ms", 7),
                ("ms", 5),
                ("of limit", 8),
                ("rails", 5),
                ("gloo ms", 7),
                ("gloo/ours", 9),
            ),
            partial(_rows, network, options.iterations),
        )
        for network in networks
    )


def _rates(text: str) -> tuple[str, ...]:
    return tuple(wire_rate(name) for name in text.split(","))


def _configure(parser: argparse.ArgumentParser) -> None:
    topologies = sorted({network.topology for network in NETWORKS})
    parser.add_argument("--network", action="append", choices=topologies, help="only this one; may be repeated (all)")
    parser.add_argument(
        "--rate", type=_rates, metavar="R[,..]", help="of the wires, such as 1gbit,10gbit (those of the networks)"
    )
    parser.add_argument("--iterations", type=int, default=4, metavar="N", help="timed, of each collective (4)")


TABLE = Table("hosts", "collectives between emulated hosts, against raw TCP and gloo (as root)", _parts, _configure)

"""Table `over`: schedules by `syntony.over` beside what the group does itself, between emulated hosts (as root).

On gloo, schedules synthesized for the wires at hand run as messages beside gloo's own collectives; where the network is
not flat, gloo does not know which wires are slow. On our backend, `over` hands a schedule to our executor, which is
timed beside the executor called directly. Every result is checked.

All hosts share the cores of this machine: figures compare ways within a row, they are not those of a cluster.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from syntony.base.quantity import bit_rate
from syntony.benchmarks.runtime.measured import in_lab
from syntony.benchmarks.runtime.measured.over_rank import Job, Timed
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, at_rate, spec_of
from syntony.synth.engines.engine import Budget, checked
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats.schedule_file import write
from syntony.synth.model.problem import problem_of
from syntony.topologies.parse import parse

GOAL_OWN = 0.9
"""Of our executor called directly."""

_SIZE = 1 << 20
_RATE = "200mbit"
_SYNTHESIZED = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce")
_BUILT_IN = (
    *(("all_reduce", algorithm) for algorithm in ("ring", "dbt", "two_shot")),
    *(("reduce_scatter", algorithm) for algorithm in ("ring", "direct")),
    *(("all_gather", algorithm) for algorithm in ("ring", "direct")),
    *(("all_to_all", algorithm) for algorithm in ("ring", "direct")),
)


@dataclass(frozen=True)
class Network:
    """A lab; `beaten`: the collectives in which gloo's own must be slower there."""

    title: str
    topology: str
    beaten: tuple[str, ...]


NETWORKS = (
    Network("4 hosts, one cable at a tenth", "full:4,slowed=rank0-rank1@10%", ("all_to_all", "all_gather")),
    Network("8 hosts, two cables at a tenth", "full:8,slowed=rank0-rank1@10%,slowed=rank2-rank5@10%",
            ("all_to_all", "all_gather")),
    Network("2 hosts of 4 ranks, one cable", "rail:boxes=2,gpus=4,rails=1", ("all_gather",)),
)  # fmt: skip


def _gloo(network: Network, iterations: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="syntony-over-") as folder:
        files = {collective: _synthesized(network, collective, Path(folder)) for collective in _SYNTHESIZED}
        jobs = [Job("gloo", collective, str(file), _SIZE, iterations) for collective, file in files.items()]
        found = _measure(network, jobs)
    for job, timed in zip(jobs, found, strict=True):
        gain = timed.own / timed.over
        missed = "gloo's own is as fast" if job.collective in network.beaten and gain <= 1 else ""
        yield Row((job.collective, _ms(timed.own), _ms(timed.over), f"{gain:.2f}"), missed)


def _ours(network: Network, iterations: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="syntony-over-") as folder:
        file = _synthesized(network, "all_gather", Path(folder))
        pairs = [*_BUILT_IN, ("all_gather", str(file))]
        jobs = [Job("syntony", collective, schedule, _SIZE, iterations) for collective, schedule in pairs]
        found = _measure(network, jobs)
    for job, timed in zip(jobs, found, strict=True):
        part, messages = timed.own / timed.over, timed.own / timed.messages
        missed = f"{part:.2f} of our executor, not {GOAL_OWN}" if part < GOAL_OWN else ""
        times = (_ms(timed.own), _ms(timed.over), _ms(timed.messages))
        name = "synthesized" if job.schedule.endswith(".json") else job.schedule
        yield Row((job.collective, name, *times, f"{part:.2f}", f"{messages:.2f}"), missed)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _synthesized(network: Network, collective: str, folder: Path) -> Path:
    topology, asked = problem_of(network.topology, collective, None, 0, None)
    # `auto` may cut into slices: every step is a launch, and more of them only pay on faster wires.
    engine = {"all_to_all": "flow", "all_reduce": "auto"}.get(collective, "forest")
    schedule = checked(engine_named(engine).run(topology, asked, _SIZE, Budget(10.0)))
    write(schedule, folder / f"{collective}.json")
    return folder / f"{collective}.json"


def _measure(network: Network, jobs: list[Job]) -> list[Timed]:
    """Raises LabError where there can be no lab, where a rank fails, and where a result is wrong."""
    with Lab(at_rate(spec_of(parse(network.topology)), bit_rate(_RATE))) as lab:
        answer = in_lab.answer_of_rank_0(lab, "over_rank", [asdict(job) for job in jobs])
    found = [Timed(**timed) for timed in answer]
    for job, timed in zip(jobs, found, strict=True):
        if timed.wrong:
            raise LabError(f"{job.collective} by {job.schedule} on {job.backend}: {timed.wrong} elements are wrong")
    return found


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    heads = (("gloo ms", 9), ("over ms", 9), ("gloo/over", 9))
    own = (("schedule", -12), ("executor ms", 11), ("over ms", 9), ("messages ms", 11), ("executor/over", 13),
           ("executor/messages", 17))  # fmt: skip
    for network in NETWORKS:
        if options.network in (None, network.topology):
            title = f"{network.title} ({network.topology}), {_SIZE >> 20} MiB, {_RATE}"
            yield Part(f"{title}, on gloo", (("collective", -14), *heads), partial(_gloo, network, options.iterations))
            yield Part(f"{title}, on syntony", (("collective", -14), *own), partial(_ours, network, options.iterations))


def _configure(parser: argparse.ArgumentParser) -> None:
    names = [network.topology for network in NETWORKS]
    parser.add_argument("--network", choices=names, help="only this one (all)")
    parser.add_argument("--iterations", type=int, default=5, metavar="N", help="timed, of each collective (5)")


TABLE = Table("over", "schedules by syntony.over beside gloo and our own executor (as root)", _parts, _configure)

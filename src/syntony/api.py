"""The top-level functions: `syntony bound`, `synth`, `verify` and `simulate` for use from Python."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from syntony.base import arguments
from syntony.base.command import UserError
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import Verdict, check_program, check_schedule
from syntony.synth.engines.engine import Budget, checked
from syntony.synth.engines.portfolio import Portfolio
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import loading
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import Collective
from syntony.synth.model.problem import problem_of
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CONVERSION
from syntony.synth.simulation import schedule_simulator
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.result import Simulation
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology


def bound(
    topology: Topology | str, collective: Collective | str, *, root: int = 0, members: Sequence[int] | None = None
) -> Bounds:
    """Lower bounds on the latency and throughput of any schedule of the collective on the topology, with witnesses.

        syntony.bound("dgx1", "all_gather").throughput.algbw

    `root` and `members` (ranks of the topology) apply only to a collective given by name. Raises UserError.
    """
    return bounds_of(*problem_of(topology, collective, None, root, members))


def synthesize(
    topology: Topology | str,
    collective: Collective | str,
    *,
    size: int | str = "1M",
    engine: str = "auto",
    chunks: int | None = None,
    steps: int | None = None,
    rounds: int | None = None,
    timeout: float = 60.0,
    root: int = 0,
    members: Sequence[int] | None = None,
) -> Schedule:
    """Synthesizes a schedule of the collective on the topology. It carries its bounds and is proven by the checker.

        syntony.synthesize("dgx1", "all_gather", size="64M", engine="forest")

    size     bytes to optimize for, or text such as "64M"
    engine   one of those that `syntony synth --help` lists
    chunks   per block; for all_to_all, per rank's buffer
    steps    maximum number of steps
    rounds   maximum number of rounds
    timeout  seconds to search
    root     of a rooted collective
    members  ranks of the topology that take part; the others do not relay

    chunks, root and members apply only to a collective given by name. Raises UserError if the arguments contradict each
    other or the engine finds no schedule.
    """
    found = engine_named(engine)
    network, asked = problem_of(topology, collective, chunks, root, members)
    return checked(found.run(network, asked, _bytes(size), Budget(timeout, steps, rounds)))


def verify(what: str | Path | Schedule | Program) -> Verdict:
    """The checker's verdict on a file, a schedule or a program: true if proven, otherwise it holds the first fault.

        verdict = syntony.verify("allgather.json")
        print(verdict.fault if not verdict else "proven")

    Raises UserError if the file cannot be read.
    """
    if isinstance(what, Schedule):
        return check_schedule(what)
    return check_program(what) if isinstance(what, Program) else loading.verify(what)


def simulate(
    what: str | Path | Schedule | Program,
    size: int | str,
    *,
    topology: Topology | str | None = None,
    every_message: bool = False,
) -> Simulation:
    """Simulates a file, a schedule or a program for `size` bytes in the alpha-beta model with shared links.

        syntony.simulate("allgather.json", "64M").seconds

    topology       for programs, which do not name links; a schedule carries its own
    every_message  keep every message, and the rates of links over time

    A program is verified first. Raises UserError.
    """
    length = _bytes(size)
    content = loading.read(what).content if isinstance(what, str | Path) else what
    if isinstance(content, Portfolio):
        content = content.at(length)
    if isinstance(content, Schedule):
        if topology is not None:
            raise UserError(f"a schedule carries its topology, here {content.topology.name}; leave out topology")
        return schedule_simulator.simulate(content, length, every_message=every_message, timeline=every_message)
    if topology is None:
        raise UserError(f"a program names no links; say which topology, such as full:{content.ranks}")
    network = parse(topology) if isinstance(topology, str) else topology
    name = what if isinstance(what, str | Path) else content.name
    program = loading.prove(loading.Loaded(content), name, target=CONVERSION)
    return simulate_program(program, network, length, every_message=every_message)


def _bytes(size: int | str) -> int:
    try:
        return arguments.size(str(size))
    except ArgumentTypeError as error:
        raise UserError(f"size: {error}") from None

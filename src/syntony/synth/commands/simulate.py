"""`syntony simulate`: the time of a schedule or a program in the model of simulation/flows.py."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import wrote
from syntony.base.wording import bytes_of, counted, unknown
from syntony.synth.commands.problem import add_timeout
from syntony.synth.commands.traffic import add_choice, add_heat_map, add_trace, choice_of, write_heat_map
from syntony.topologies.cli import TOPOLOGY_HELP

if TYPE_CHECKING:
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.simulation.result import Simulation
    from syntony.synth.traffic.run import Outcome
    from syntony.topologies.topology import Link, Topology

_BUILDER = "builder:"
_BINS, _ROWS, _BARS = 32, 16, " ▁▂▃▄▅▆▇█"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="F",
        help="a schedule, a program, MSCCL XML or NCCL's graph file; or builder:ALGORITHM:COLLECTIVE, such as "
        "builder:ring:all_reduce",
    )
    parser.add_argument("--size", type=size, default=1 << 30, metavar="BYTES", help="bytes (default 1G)")
    parser.add_argument(
        "--slice",
        type=size,
        metavar="BYTES",
        help="largest message in bytes (default: that of the CPU executor, or as the output says)",
    )
    add_trace(parser, " of every link")
    parser.add_argument("--utilization", action="store_true", help="show the busiest links, and their use over time")
    wires = parser.add_argument_group("topology for a program (a schedule contains its own)")
    wires.add_argument("--topology", metavar="T", help=TOPOLOGY_HELP)
    wires.add_argument(
        "--fifo-depth", type=count, metavar="N", help="messages a connection holds (default: the CPU executor's)"
    )
    paths = parser.add_argument_group("for networks with several shortest paths (see `syntony traffic --help`)")
    add_choice(paths)
    add_heat_map(parser)
    parser.add_argument("--explain", action="store_true", help="explain what determines the time")
    switches = parser.add_argument_group("for schedules")
    switches.add_argument(
        "--switching",
        choices=("cut-through", "store-and-forward"),
        help="how switches forward messages (default: cut-through)",
    )
    add_timeout(parser, None)


def _run(options: argparse.Namespace) -> int:
    from syntony.synth.nccl.graph_file import is_graph_file

    if is_graph_file(Path(options.file)):
        return _run_graphs(options)
    found, outcome, how = _simulation(options)
    written = [_write_trace(found, outcome, options.trace)] if options.trace else []
    if options.heat_map:
        write_heat_map(found.topology, found.busy / (found.seconds or 1.0), found.seconds, options.heat_map)
        written.append(wrote(options.heat_map))
    why = _explained(outcome) if options.explain and outcome else []
    told = _report(found, options.utilization) | how | ({"critical_path": why} if why else {})
    lines = [f"  slices   {how['slices']}", f"  paths    {how['paths']}", *(f"  {line}" for line in why)]
    tell(options, told, [*_story(found, options.utilization), *lines, *written])
    return 0


def _run_graphs(options: argparse.Namespace) -> int:
    """The bandwidth that links allow the channels of NCCL's graph file."""
    from syntony.synth.nccl.judge import simulate_graphs

    if options.topology is None:
        raise UserError(
            f"{options.file}: a graph file names no links; give the machine it is for, such as --topology dgx1"
        )
    _refuse(options, ("trace", "heat_map", "switching", "fifo_depth", "slice"), "NCCL's graph file")
    told = simulate_graphs(Path(options.file), options.topology, options.size)
    found = {"graphs": [graph.to_dict() for graph in told]}
    tell(options, found, [line for graph in told for line in graph.lines()])
    return 0


def _write_trace(found: Simulation, outcome: Outcome | None, path: Path) -> str:
    """Writes the trace; returns a sentence about it."""
    from syntony.synth.simulation.trace import write_trace
    from syntony.synth.traffic.trace import write_trace as write_traffic

    if outcome is not None:
        write_traffic(outcome, path)
        return wrote(path)
    together = write_trace(found, path)
    return wrote(path, f"thinned: up to {together} slices of a message in one box" if together > 1 else "")


def _explained(outcome: Outcome) -> list[str]:
    from syntony.base.progress import progress
    from syntony.synth.traffic.critical_path import describe

    with progress("explaining"):
        return describe(outcome)


def _simulation(options: argparse.Namespace) -> tuple[Simulation, Outcome | None, dict[str, str]]:
    """The simulation; its traffic, if paths are chosen or the time is to be explained; and how it was simulated.

    Nothing unproven is simulated: raises UserError with the checker's verdict.
    """
    from syntony.base.progress import progress
    from syntony.synth.engines.portfolio import Portfolio
    from syntony.synth.formats.loading import prove, prove_schedule, read
    from syntony.synth.model.program import Program
    from syntony.synth.model.target import CONVERSION
    from syntony.synth.simulation.schedule_simulator import Switching, simulate
    from syntony.synth.simulation.usual_slice import usual_slice
    from syntony.topologies.parse import parse

    name = options.file
    if name.startswith(_BUILDER):
        if options.topology is None:
            raise UserError(f"{name}: give a topology, which also sets the number of ranks, such as --topology ring:8")
        topology = parse(options.topology)
        return _on_wires(_built(name, topology.ranks), topology, options)
    loaded = read(name)
    if isinstance(loaded.content, Program):
        if options.topology is None:
            raise UserError(
                f"{name}: a program does not name links; give a topology, such as "
                f"--topology full:{loaded.content.ranks}"
            )
        topology = parse(options.topology)
        if loaded.content.ranks != topology.ranks:
            raise UserError(
                f"{name}: the program is for {counted(loaded.content.ranks, 'rank')}, "
                f"but {topology.name} has {topology.ranks}"
            )
        with progress(f"proving {name}"):
            program = prove(loaded, name, target=CONVERSION)
        return _on_wires(program, topology, options)
    schedule = loaded.content.at(options.size) if isinstance(loaded.content, Portfolio) else loaded.content
    _refuse(
        options,
        ("topology", "fifo_depth"),
        f"a schedule, which contains its topology ({schedule.topology.name}) and has no FIFOs",
    )
    with progress(f"checking {name}"):
        prove_schedule(schedule, name)
    bytes_ = options.slice or usual_slice(schedule, options.size)
    if options.paths or options.explain:
        return _schedule_as_traffic(schedule, bytes_, options)
    switching: Switching = options.switching or "cut-through"
    with progress(f"simulating {name}"):
        found = simulate(
            schedule,
            options.size,
            bytes_,
            switching,
            every_message=bool(options.trace),
            timeline=options.utilization,
        )
    return found, None, {"slices": f"of {bytes_of(bytes_)}", "paths": f"as scheduled, {switching}"}


def _schedule_as_traffic(
    schedule: Schedule, bytes_: int, options: argparse.Namespace
) -> tuple[Simulation, Outcome, dict[str, str]]:
    """Simulates the slices of a schedule's transfers, on its own routes or on the paths that switches choose."""
    from syntony.base.progress import progress
    from syntony.synth.traffic.choice import Choice
    from syntony.synth.traffic.from_files import as_scheduled, schedule_messages
    from syntony.synth.traffic.job import Job
    from syntony.synth.traffic.run import flows_of, simulate

    _refuse(options, ("switching",), "simulated as messages on paths")
    collective = schedule.collective
    with progress(f"simulating {options.file}"):
        if options.paths:
            messages = schedule_messages(schedule, options.size, bytes_)
            job = Job(collective.kind, collective.members, messages)
            traffic = flows_of(schedule.topology, [job], choice_of(options, Choice("single")))
        else:
            traffic = as_scheduled(schedule, options.size, bytes_)
        outcome = simulate(traffic, timeline=True)
    found = _told(schedule, outcome, options)
    return found, outcome, {"slices": f"of {bytes_of(bytes_)}", "paths": str(outcome.traffic.choice)}


def _told(source: Schedule | Program, outcome: Outcome, options: argparse.Namespace) -> Simulation:
    """An outcome as a simulation; its messages stay in the outcome."""
    import numpy as np

    from syntony.synth.model.schedule import Schedule
    from syntony.synth.simulation.program_simulator import collective_of
    from syntony.synth.simulation.result import Messages, Simulation
    from syntony.synth.simulation.utilization import LinkRates

    collective = source.collective if isinstance(source, Schedule) else collective_of(source)
    times, busy = outcome.times, outcome.utilization * outcome.seconds
    rates = LinkRates(times.times, times.link, times.rate)
    none, never = np.zeros(0, np.int64), np.zeros(0)
    messages = Messages(none, none, none, never, never, never)
    topology = outcome.traffic.topology
    return Simulation(source, topology, collective, options.size, outcome.seconds, [], messages, busy, rates)


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for option in names:
        if getattr(options, option) is not None:
            raise UserError(f"{options.file}: it is {why}; leave out --{option.replace('_', '-')}")


def _built(name: str, ranks: int) -> Program:
    """The Program that `builder:ALGORITHM:COLLECTIVE` names."""
    from syntony import _core

    algorithm, _, collective = name.removeprefix(_BUILDER).partition(":")
    known = {entry.name: entry.collectives for entry in _core.algorithms()}
    if algorithm not in known:
        raise UserError(f"{name}: {unknown('algorithm', algorithm, known)}")
    if collective not in known[algorithm]:
        raise UserError(f"{name}: {unknown('collective', collective, known[algorithm])} for {algorithm}")
    return _core.build(algorithm, collective, ranks)


def _on_wires(
    program: Program, topology: Topology, options: argparse.Namespace
) -> tuple[Simulation, Outcome | None, dict[str, str]]:
    """Simulates a program; message by message if requested, or if loads determine paths."""
    from syntony.base.progress import progress
    from syntony.synth.simulation.program_simulator import executor_depth, executor_slice, simulate_program
    from syntony.synth.traffic.choice import Choice
    from syntony.synth.traffic.program_run import run_program

    _refuse(options, ("switching",), "a program, whose messages cut through switches")
    choice = choice_of(options, Choice("single")) if options.paths else None
    balanced = choice is not None and choice.name == "least-loaded"
    outcome = None
    try:
        with progress(f"simulating {options.file}"):
            if options.explain or balanced or (choice and options.trace):
                outcome = run_program(program, topology, options.size, choice, options.slice, options.fifo_depth)
                found = _told(program, outcome, options)
            else:
                every_message = bool(options.trace) or options.utilization
                ways = choice.ways(topology) if choice else None
                found = simulate_program(
                    program, topology, options.size, options.slice, options.fifo_depth, every_message, ways
                )
    except UserError as error:
        raise UserError(f"{options.file}: {error}") from None
    depth = options.fifo_depth or executor_depth(program)
    slices = f"of {bytes_of(options.slice or executor_slice(program.ranks))}, {depth} of a connection at once"
    return found, outcome, {"slices": slices, "paths": str(choice or "shortest, channel c the c-th of them")}


def _report(found: Simulation, utilization: bool) -> dict[str, object]:
    links: list[dict[str, object]] = [
        {"link": link.id, "busy": float(found.busy[link.id])} for link in found.topology.links
    ]
    report: dict[str, object] = {
        "seconds": found.seconds,
        "algbw": found.algbw,
        "busbw": found.busbw,
        "bound_seconds": found.bound_seconds,
        "fraction": found.fraction,
        "size": found.size,
        "links": links,
    }
    if utilization:
        report["bin_seconds"] = found.seconds / _BINS
        for entry, shares in zip(links, found.utilization(_BINS).tolist(), strict=True):
            entry["over_time"] = shares
    return report


def _story(found: Simulation, utilization: bool) -> list[str]:
    links = found.topology.links
    moved = counted(found.size, "byte")
    lines = [
        f"{found.collective.kind} on {found.topology.name}, {moved} (simulated, alpha-beta model)",
        f"  time     {found.seconds:.6g} s, at least {found.bound_seconds:.6g} s by the bounds ({found.fraction:.1%})",
        f"  algbw    {found.algbw / 1e9:.4g} GB/s    busbw {found.busbw / 1e9:.4g} GB/s",
    ]
    busiest = sorted(links, key=lambda link: (-float(found.busy[link.id]), link.id))
    if not busiest or not found.seconds:
        return lines
    if not utilization:
        first = busiest[0]
        lines.append(
            f"  busiest  link {first.id}, {_ends(found, first)}: busy {found.busy[first.id] / found.seconds:.1%}"
        )
        return lines
    over_time = found.utilization(_BINS)
    lines.append(f"  links    busiest first; over time, {counted(_BINS, 'part')} of {found.seconds / _BINS:.3g} s")
    for link in busiest[:_ROWS]:
        bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in over_time[link.id].tolist())
        lines.append(f"  {found.busy[link.id] / found.seconds:6.1%}  {bars}  link {link.id}, {_ends(found, link)}")
    idle = sum(not busy for busy in found.busy.tolist())
    if len(links) > _ROWS:
        lines.append(
            f"  .. and {counted(len(links) - _ROWS, 'link')} more; {idle} of all are idle (--json lists every link)"
        )
    return lines


def _ends(found: Simulation, link: Link) -> str:
    nodes = found.topology.nodes
    return f"{nodes[link.src].name} to {nodes[link.dst].name}"


COMMANDS = (
    Command(
        ("simulate",),
        "simulate a schedule or program by the alpha-beta model with fairly shared links",
        "syntony simulate builder:ring:all_reduce --topology ring:8 --size 64M --trace trace.json",
        _configure,
        _run,
        limited=True,
    ),
)

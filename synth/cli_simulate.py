"""`syntony simulate`: how long a schedule or a program takes, by the model of synth/flows.py."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from synth.arguments import count, size
from synth.counted import counted
from topologies.cli import TOPOLOGY_HELP, add_json
from topologies.command import Command, UserError

if TYPE_CHECKING:
    from synth.program import Program
    from synth.simulation import Simulation
    from topologies.topology import Link, Topology

_BUILDER = "builder:"
_BINS, _ROWS, _BARS = 40, 16, " ▁▂▃▄▅▆▇█"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="F",
        help="a schedule, a program or MSCCL XML; or builder:ALGORITHM:COLLECTIVE, such as builder:ring:all_reduce",
    )
    parser.add_argument("--size", type=size, default=1 << 30, metavar="BYTES", help="bytes (default 1G)")
    parser.add_argument(
        "--slice",
        type=size,
        metavar="BYTES",
        help="bytes of a message at most (default: the CPU executor's; of a schedule, a transfer is one message)",
    )
    parser.add_argument("--trace", metavar="F.json", help="write a Chrome/Perfetto trace of every link")
    parser.add_argument("--utilization", action="store_true", help="show the busiest links, and how full over time")
    wires = parser.add_argument_group("for programs, which name no wires (schedules carry theirs)")
    wires.add_argument("--topology", metavar="T", help=TOPOLOGY_HELP)
    wires.add_argument(
        "--fifo-depth", type=count, metavar="N", help="messages a connection holds (default: the CPU executor's)"
    )
    switches = parser.add_argument_group("for schedules")
    switches.add_argument(
        "--switching",
        choices=("cut-through", "store-and-forward"),
        help="how switches pass messages on (default: cut-through)",
    )
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    if options.trace and not Path(options.trace).parent.is_dir():
        raise UserError(f"{options.trace}: there is no folder {Path(options.trace).parent}")
    found = _simulation(options)
    if options.trace:
        from synth.trace import write_trace

        write_trace(found, options.trace)
    if options.json:
        print(json.dumps(_report(found, options.utilization)))
    else:
        print(_story(found, options.utilization))
    return 0


def _simulation(options: argparse.Namespace) -> Simulation:
    from synth.loading import prove, read
    from synth.program import Program
    from synth.progress import progress
    from synth.simulator import simulate
    from synth.target import CONVERSION
    from topologies.parse import parse

    name = options.file
    if name.startswith(_BUILDER):
        if options.topology is None:
            raise UserError(f"{name}: say on which wires, and so for how many ranks, such as --topology ring:8")
        topology = parse(options.topology)
        return _on_wires(_built(name, topology.ranks), topology, options)
    loaded = read(name)
    if isinstance(loaded.content, Program):
        if options.topology is None:
            raise UserError(
                f"{name}: it holds a program, which names no wires; say which, such as "
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
    _refuse(
        options,
        ("topology", "fifo_depth"),
        f"a schedule, which carries its topology ({loaded.content.topology.name}) and has no FIFOs",
    )
    with progress(f"simulating {name}"):
        return simulate(
            loaded.content,
            options.size,
            options.slice,
            options.switching or "cut-through",
            every_message=bool(options.trace),
            timeline=options.utilization,
        )


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for option in names:
        if getattr(options, option) is not None:
            raise UserError(f"{options.file}: it is {why}; leave out --{option.replace('_', '-')}")


def _built(name: str, ranks: int) -> Program:
    """The Program that `builder:ALGORITHM:COLLECTIVE` names."""
    from csrc import _core
    from synth.program import Program

    algorithm, _, collective = name.removeprefix(_BUILDER).partition(":")
    known = {entry.name: entry.collectives for entry in _core.algorithms()}
    if algorithm not in known:
        raise UserError(f"{name}: no algorithm '{algorithm}'; the algorithms are {', '.join(known)}")
    if collective not in known[algorithm]:
        raise UserError(f"{name}: {algorithm} has no '{collective}'; it builds {', '.join(known[algorithm])}")
    return Program.from_core(_core.build(algorithm, collective, ranks))


def _on_wires(program: Program, topology: Topology, options: argparse.Namespace) -> Simulation:
    from synth.program_simulator import simulate_program
    from synth.progress import progress

    _refuse(options, ("switching",), "a program, whose messages cut through switches")
    every_message = bool(options.trace) or options.utilization
    try:
        with progress(f"simulating {options.file}"):
            return simulate_program(program, topology, options.size, options.slice, options.fifo_depth, every_message)
    except UserError as error:
        raise UserError(f"{options.file}: {error}") from None


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


def _story(found: Simulation, utilization: bool) -> str:
    links = found.topology.links
    moved = counted(found.size, "byte")
    lines = [
        f"{found.collective.kind} on {found.topology.name}, {moved} (simulated, alpha-beta model)",
        f"  time    {found.seconds:.6g} s, at least {found.bound_seconds:.6g} s by the bounds ({found.fraction:.1%})",
        f"  algbw   {found.algbw / 1e9:.4g} GB/s    busbw {found.busbw / 1e9:.4g} GB/s",
    ]
    busiest = sorted(links, key=lambda link: (-float(found.busy[link.id]), link.id))
    if not busiest or not found.seconds:
        return "\n".join(lines)
    if not utilization:
        first = busiest[0]
        lines.append(
            f"  busiest link {first.id}, {_ends(found, first)}: busy {found.busy[first.id] / found.seconds:.1%}"
        )
        return "\n".join(lines)
    over_time = found.utilization(_BINS)
    lines.append(f"  links   busiest first; over time, {counted(_BINS, 'part')} of {found.seconds / _BINS:.3g} s")
    for link in busiest[:_ROWS]:
        bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in over_time[link.id].tolist())
        lines.append(f"  {found.busy[link.id] / found.seconds:6.1%}  {bars}  link {link.id}, {_ends(found, link)}")
    idle = sum(not busy for busy in found.busy.tolist())
    if len(links) > _ROWS:
        lines.append(
            f"  .. and {counted(len(links) - _ROWS, 'link')} more; {idle} of all are idle (--json lists every link)"
        )
    return "\n".join(lines)


def _ends(found: Simulation, link: Link) -> str:
    nodes = found.topology.nodes
    return f"{nodes[link.src].name} to {nodes[link.dst].name}"


COMMANDS = (
    Command(
        ("simulate",),
        "time a schedule or a program by the alpha-beta model with fairly shared links",
        "syntony simulate builder:ring:all_reduce --topology ring:8 --size 64M --trace trace.json",
        _configure,
        _run,
    ),
)

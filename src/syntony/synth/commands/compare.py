"""`syntony compare`: schedules, builders and engines side by side on one network, simulated.

    what       a file (schedule, program, MSCCL XML), a built-in algorithm by name (ring, dbt, ..), or engine:NAME
    on what    the network and the collective of --on and --collective, or those of the first schedule file

Contenders that cannot run on this network (a ring whose neighbours have no link) are left out with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import NARROW, tell
from syntony.base.arguments import size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.text_table import aligned
from syntony.base.wording import bytes_of, counted, did_you_mean, time
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import TOPOLOGY_HELP

if TYPE_CHECKING:
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.simulation.result import Simulation
    from syntony.topologies.topology import Topology

_ENGINE = "engine:"
_SIZES = "1K,64K,1M,64M,1G"


@dataclass(frozen=True)
class Contender:
    """One contender. `steps`: None for a Program, which has none."""

    name: str
    content: Schedule | Program
    steps: int | None


def _configure(parser: argparse.ArgumentParser) -> None:
    from syntony.synth.model.collective import KINDS

    parser.add_argument(
        "what",
        nargs="+",
        metavar="WHAT",
        help="a schedule or program file, a built-in algorithm (ring, dbt, ..) or engine:NAME",
    )
    parser.add_argument("--on", metavar="T", help=f"the network: {TOPOLOGY_HELP} (default: the first schedule's)")
    parser.add_argument(
        "--collective", metavar="COLLECTIVE", help=f"one of {', '.join(KINDS)} (default: the first file's)"
    )
    parser.add_argument("--sizes", default=_SIZES, metavar="S,T", help=f"sizes to compare at (default {_SIZES})")
    add_timeout(parser, 300.0)
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.svg",
        endings=(".svg", ".png", ".pdf"),
        what="it is drawn as SVG, PNG or PDF",
        help="draw the share of the bound over the size: .svg, .png or .pdf",
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress

    sizes = _sizes(options.sizes)
    topology, collective, contenders = _contenders(options, sizes[-1])
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for contender in contenders:
        try:
            with progress(f"simulating {contender.name}"):
                rows.append(_row(contender, [_simulated(contender, topology, at) for at in sizes]))
        except UserError as error:
            refused[contender.name] = str(error)
    if not rows:
        raise UserError("; ".join(f"{name}: {why}" for name, why in refused.items()))
    title = f"{collective.kind} on {topology.name}, {counted(collective.ranks, 'rank')}"
    times = zip(sizes, _bounds(topology, collective, sizes), strict=True)
    least = [{"size": at, "seconds": seconds} for at, seconds in times]
    if options.output:
        _draw(title, rows, options.output)
    lines = [f"{title} (simulated, alpha-beta model)", *_table(sizes, rows, least)]
    lines += [f"  left out: {name}: {why}" for name, why in refused.items()]
    lines += [wrote(options.output)] if options.output else []
    file = None if options.output is None else str(options.output)
    told = {"topology": topology.name, "collective": collective.kind, "ranks": collective.ranks}
    tell(options, told | {"bounds": least, "compared": rows, "refused": refused, "file": file}, lines)
    return 0


def _sizes(text: str) -> list[int]:
    try:
        return sorted({size(one) for one in text.split(",")})
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--sizes: {error}") from None


def _contenders(options: argparse.Namespace, at: int) -> tuple[Topology, Collective, list[Contender]]:
    """The contenders, proven, and their problem. Raises UserError if they do not fit together."""
    from syntony.synth.engines.portfolio import Portfolio
    from syntony.synth.formats.loading import prove, prove_schedule, read
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.model.target import CONVERSION

    files: dict[str, Schedule | Program] = {}
    for name in options.what:
        if Path(name).is_file():
            loaded = read(name)
            content = loaded.content.at(at) if isinstance(loaded.content, Portfolio) else loaded.content
            files[name] = (
                prove_schedule(content, name)
                if isinstance(content, Schedule)
                else prove(loaded, name, target=CONVERSION)
            )
    topology, collective = _problem(options, list(files.values()))
    found = []
    for name in options.what:
        content = files[name] if name in files else _made(name, topology, collective, options, at)
        _require_same(name, content, topology, collective)
        found.append(Contender(name, content, None if isinstance(content, Program) else content.steps))
    return topology, collective, found


def _problem(options: argparse.Namespace, files: Sequence[Schedule | Program]) -> tuple[Topology, Collective]:
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.problem import problem_of
    from syntony.synth.model.schedule import Schedule
    from syntony.topologies.parse import parse

    schedule = next((one for one in files if isinstance(one, Schedule)), None)
    if options.on is None and schedule is None:
        raise UserError("on which network? Say --on T, or compare a schedule file, which has its own")
    topology = parse(options.on) if options.on is not None or schedule is None else schedule.topology
    if options.collective is not None:
        return problem_of(topology, options.collective)
    if schedule is not None:
        return topology, schedule.collective
    if not files:
        raise UserError("which collective? Say --collective all_reduce, or compare a file, which has its own")
    assert not isinstance(files[0], Schedule)
    return topology, Collective.make(files[0].collective, files[0].ranks, root=files[0].root)


def _made(
    name: str, topology: Topology, collective: Collective, options: argparse.Namespace, at: int
) -> Schedule | Program:
    """A builder's Program, or an engine's schedule for `at` bytes."""
    from syntony import _core
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import Budget, checked
    from syntony.synth.engines.registry import engine_named

    if name.startswith(_ENGINE):
        engine = engine_named(name.removeprefix(_ENGINE))
        with progress(f"{engine.name}: {collective.kind} on {topology.name}", options.timeout):
            schedule = engine.run(topology, collective, at, Budget(options.timeout / (1 + len(options.what))))
        checked(schedule)
        return schedule
    known = {entry.name: entry.collectives for entry in _core.algorithms()}
    if name not in known:
        guess = did_you_mean(name, known)
        raise UserError(
            f"{name}: no such file, and no such algorithm{guess}; there are {', '.join(known)}, and engine:NAME"
        )
    if collective.kind not in known[name]:
        raise UserError(f"{name} does no {collective.kind}; it does {', '.join(known[name])}")
    if collective.ranks != topology.ranks:
        raise UserError(f"{name}: a built-in algorithm is for all {topology.ranks} ranks of {topology.name}")
    return _core.build(name, collective.kind, collective.ranks)


def _require_same(name: str, content: Schedule | Program, topology: Topology, collective: Collective) -> None:
    from syntony.synth.model.program import Program

    if isinstance(content, Program):
        kind, ranks = content.collective, content.ranks
    else:
        kind, ranks = content.collective.kind, content.collective.ranks
        if content.topology.nodes != topology.nodes or content.topology.links != topology.links:
            raise UserError(f"{name}: it is made for {content.topology.name}, and the others run on {topology.name}")
    if (kind, ranks) != (collective.kind, collective.ranks):
        wanted = f"{collective.kind} on {collective.ranks}"
        raise UserError(f"{name}: it is {kind} on {counted(ranks, 'rank')}, and {wanted} is compared")


def _simulated(contender: Contender, topology: Topology, at: int) -> Simulation:
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.simulation.program_simulator import simulate_program
    from syntony.synth.simulation.schedule_simulator import simulate
    from syntony.synth.simulation.usual_slice import usual_slice

    content = contender.content
    if isinstance(content, Schedule):
        return simulate(content, at, usual_slice(content, at))
    return simulate_program(content, topology, at)


def _bounds(topology: Topology, collective: Collective, sizes: Sequence[int]) -> list[float]:
    from syntony.synth.bounds.throughput import bounds_of

    bounds = bounds_of(topology, collective)
    return [bounds.seconds(at) for at in sizes]


def _row(contender: Contender, found: Sequence[Simulation]) -> dict[str, Any]:
    from syntony.synth.model.schedule import Schedule

    engine = contender.content.engine if isinstance(contender.content, Schedule) else None
    return {
        "name": contender.name,
        "engine": engine,
        "steps": contender.steps,
        "simulated": [
            {"size": one.size, "seconds": one.seconds, "algbw": one.algbw, "fraction": one.fraction} for one in found
        ],
    }


def _table(sizes: Sequence[int], rows: Sequence[dict[str, Any]], least: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Times and shares of the bound; the fastest at each size is marked."""
    best = [min(row["simulated"][i]["seconds"] for row in rows) for i in range(len(sizes))]
    names = ["", "bound"]
    cells: list[tuple[object, ...]] = [
        ("steps", *map(bytes_of, sizes)),
        ("", *(time(one["seconds"]) for one in least)),
    ]
    for row in rows:
        found = row["simulated"]
        steps = "" if row["steps"] is None else row["steps"]
        marks = ("*" if one["seconds"] == fastest else "" for one, fastest in zip(found, best, strict=True))
        names += [row["name"], ""]
        cells.append((steps, *(mark + time(one["seconds"]) for mark, one in zip(marks, found, strict=True))))
        cells.append(("", *(f"{one['fraction']:.1%}" for one in found)))
    figures = aligned(cells, ">" * (1 + len(sizes)))
    room = max(12, NARROW - 4 - max(map(len, figures)))
    names = [name if len(name) <= room else ".." + name[2 - room :] for name in names]
    yield from aligned(list(zip(names, figures, strict=True)), "<<", "  ")
    yield "  below each time its share of the bound; * the fastest"


def _draw(title: str, rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from syntony.base.files.figure_file import write_figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for row, marker in zip(rows, "osD^vP*X<>" * len(rows), strict=False):
        at = [one["size"] for one in row["simulated"]]
        axes.plot(at, [100 * one["fraction"] for one in row["simulated"]], marker=marker, label=row["name"])
    sizes = [one["size"] for one in rows[0]["simulated"]]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [bytes_of(at) for at in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 105)
    axes.axhline(100, color="0.6", linewidth=1, linestyle="--")
    axes.set_ylabel("share of the bound, % (simulated)")
    axes.set_title(title)
    axes.legend()
    axes.grid(alpha=0.3)
    write_figure(path, figure)


COMMANDS = (
    Command(
        name=("compare",),
        summary="compare schedules, built-in algorithms and engines by simulation on one network",
        example="syntony compare ring dbt engine:greedy --on dgx-a100:2 --collective all_reduce -o compare.svg",
        configure=_configure,
        run=_run,
        limited=True,
    ),
)

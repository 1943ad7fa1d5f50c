"""`syntony traffic`: several jobs on one network, on the paths that its switches choose."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell, wrapped
from syntony.base.arguments import count
from syntony.base.command import Command
from syntony.base.outputs import add_output, wrote

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from syntony.synth.formats.jobs_file import JobsFile
    from syntony.synth.traffic.candidates import Placement
    from syntony.synth.traffic.choice import Choice
    from syntony.synth.traffic.interleave import Interleaving
    from syntony.synth.traffic.run import Outcome
    from syntony.topologies.topology import Topology


def add_choice(parser: argparse._ActionsContainer) -> None:
    """Adds --paths and --seed; `choice_of` reads them."""
    parser.add_argument("--paths", metavar="CHOICE", help="single, ecmp, e-ecmp:K, spray or least-loaded")
    parser.add_argument("--seed", type=_seed, metavar="N", help="seed of the hash of ecmp and e-ecmp (default 0)")


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a seed; seeds are 0, 1, ..")
    return int(text)


def choice_of(options: argparse.Namespace, otherwise: Choice) -> Choice:
    """The choice of paths in the options; what they do not set is taken from `otherwise`."""
    from syntony.synth.traffic.choice import Choice

    return Choice.parse(options.paths or str(otherwise), otherwise.seed if options.seed is None else options.seed)


def add_trace(parser: argparse._ActionsContainer, what: str) -> None:
    """Adds --trace."""
    add_output(parser, "--trace", metavar="F.json", help=f"write a Chrome/Perfetto trace{what}")


def add_heat_map(parser: argparse._ActionsContainer) -> None:
    """Adds --heat-map; `write_heat_map` writes it."""
    add_output(
        parser,
        "--heat-map",
        metavar="F.svg",
        endings=(".svg",),
        what="a heat map is an SVG file",
        help="write a picture of the network, coloured by use",
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    from syntony.synth.formats.jobs_file import EXAMPLE
    from syntony.synth.traffic.patterns.table import PATTERNS, written

    parser.add_argument("file", metavar="JOBS.toml", help="topology and jobs (see below); `example` for the one below")
    add_choice(parser)
    shifts = parser.add_mutually_exclusive_group()
    shifts.add_argument(
        "--interleave", action="store_true", default=None, help="also find time shifts between jobs, as CASSINI does"
    )
    shifts.add_argument(
        "--no-interleave", dest="interleave", action="store_false", help="no time shifts, whatever the file says"
    )
    parser.add_argument(
        "--mltcp", action="store_true", help="also with shares that grow with the bytes a job has sent, as in MLTCP"
    )
    parser.add_argument("--top", type=count, default=8, metavar="N", help="number of links in the table (default 8)")
    add_trace(parser, ": jobs, messages, hottest links")
    add_heat_map(parser)
    patterns = "\n".join(
        line for pattern in PATTERNS.values() for line in _described(written(pattern), pattern.summary)
    )
    indented = "".join(f"  {line}\n" if line else "\n" for line in EXAMPLE.splitlines())
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, f"a jobs file:\n{indented}\npatterns:\n{patterns}")))


def _described(pattern: str, summary: str) -> list[str]:
    """A pattern with its summary, in one line or below it."""
    return [f"  {pattern}", *wrapped(f"      {summary}", more="")]


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.traffic.critical_path import describe
    from syntony.synth.traffic.hot_links import hottest, table
    from syntony.synth.traffic.interleave import interleave
    from syntony.synth.traffic.mltcp import mltcp
    from syntony.synth.traffic.run import run

    jobs, placements = _placed(_read(options), options.file)
    with progress(f"simulating {options.file}"):
        plain = run(jobs.topology, jobs.jobs, jobs.choice, timeline=True)
        shifts = interleave(jobs.topology, jobs.jobs, jobs.choice) if jobs.interleave else None
        shifted = run(jobs.topology, jobs.jobs, jobs.choice, shifts.shifts, timeline=True) if shifts else None
        unequal = mltcp(jobs.topology, jobs.jobs, jobs.choice) if options.mltcp else None
    # The run with shifts is drawn, if there is one.
    shown = shifted or plain
    if options.trace:
        from syntony.synth.traffic.trace import write_trace

        write_trace(shown, options.trace)
    if options.heat_map:
        write_heat_map(jobs.topology, shown.utilization, shown.seconds, options.heat_map)
    links = hottest(shown, options.top)
    with progress("explaining"):
        lines = describe(plain)
        shifted_lines = describe(shifted) if shifted else None
    heading = f"{len(jobs.jobs)} jobs" if len(jobs.jobs) > 1 else "1 job"
    story = [f"{heading} on {jobs.topology.name}, paths {jobs.choice} (simulated, alpha-beta model)"]
    story += _placements_table(placements, options.top)
    story += _jobs_table(plain, shifted, shifts, unequal)
    story += ["", "hottest links" + (", interleaved" if shifted else ""), *table(links)]
    for what, why in (("why it takes as long", lines), ("and interleaved", shifted_lines)):
        story += ["", what, *(f"  {line}" for line in why)] if why else []
    story += [wrote(path) for path in (options.trace, options.heat_map) if path]
    report = _report(plain, shifted, shifts, unequal) | {"critical_path": lines, "interleaved_path": shifted_lines}
    if placements:
        report["placements"] = [
            {"score": one.score, "members": [list(job.members) for job in one.jobs]} for one in placements
        ]
    tell(options, report, story)
    return 0


def _placed(jobs: JobsFile, path: str) -> tuple[JobsFile, Sequence[Placement]]:
    """The jobs in the placement that interleaves best, and all placements, if they may be in several places."""
    from syntony.base.progress import progress
    from syntony.synth.traffic.candidates import ranked

    if not jobs.movable:
        return jobs, ()
    with progress(f"placing the jobs of {path}"):
        placements = ranked(jobs.topology, jobs.jobs, jobs.places, jobs.choice)
    return replace(jobs, jobs=placements[0].jobs), placements


def _placements_table(placements: Sequence[Placement], top: int) -> list[str]:
    from syntony.base.text_table import aligned
    from syntony.base.wording import counted

    if not placements:
        return []
    rows = [["score", *(job.name for job in placements[0].jobs)]]
    rows += [[f"{one.score:.3f}", *(_spans(job.members) for job in one.jobs)] for one in placements[:top]]
    heading = f"{counted(len(placements), 'placement')}, by how well jobs interleave there; the first is simulated"
    return [heading, *aligned(rows, "<" * len(rows[0]), "  "), ""]


def _spans(members: Sequence[int]) -> str:
    """As in a jobs file: 0-1,4-5."""
    firsts = [rank for place, rank in enumerate(members) if not place or members[place - 1] != rank - 1]
    lasts = [rank for place, rank in enumerate(members) if members[place + 1 : place + 2] != (rank + 1,)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def _read(options: argparse.Namespace) -> JobsFile:
    from syntony.synth.formats.jobs_file import EXAMPLE, parse_jobs, read_jobs

    example = options.file == "example" and not Path("example").exists()
    jobs = parse_jobs(EXAMPLE, Path("example")) if example else read_jobs(options.file)
    interleaved = jobs.interleave if options.interleave is None else options.interleave
    return replace(jobs, choice=choice_of(options, jobs.choice), interleave=interleaved)


def write_heat_map(topology: Topology, use: NDArray[np.float64], seconds: float, path: Path) -> None:
    """Writes the heat map of a run: `use` is the mean part of every link's capacity over its `seconds`."""
    from syntony.base.files.whole_file import write_text
    from syntony.base.wording import time
    from syntony.topologies.drawing.heat_map import heat_map

    write_text(path, heat_map(topology, use.tolist(), f"{topology.name}: mean use of its links over {time(seconds)}"))


def _jobs_table(
    plain: Outcome, shifted: Outcome | None, shifts: Interleaving | None, unequal: Outcome | None
) -> list[str]:
    from syntony.base.text_table import aligned
    from syntony.base.wording import time

    heading = ["job", "iteration"]
    heading += ["interleaved", "shift", "gain"] if shifted else []
    heading += ["MLTCP", "at last", "gain"] if unequal else []
    rows = [heading]
    for number, job in enumerate(plain.traffic.jobs):
        before = plain.iteration_seconds(number)
        row = [job.name, time(before)]
        if shifted is not None and shifts is not None:
            after = shifted.iteration_seconds(number)
            row += [time(after), time(shifts.shifts[number].start), _gain(before, after)]
        if unequal is not None:
            last = float(unequal.iterations(number)[-1])
            row += [time(unequal.iteration_seconds(number)), time(last), _gain(before, last)]
        rows.append(row)
    lines = aligned(rows, "<" + ">" * (len(heading) - 1), "  ")
    ends = [time(plain.seconds)]
    ends += [f"{time(shifted.seconds)} interleaved"] if shifted else []
    ends += [f"{time(unequal.seconds)} with MLTCP"] if unequal else []
    lines.append(f"  all done after {'; '.join(ends)}")
    if shifts is not None and shifted is not None:
        lines += _left_over(shifts, plain)
    return lines


def _gain(before: float, after: float) -> str:
    return f"{before / after if after else 1.0:.2f}x"


def _left_over(shifts: Interleaving, plain: Outcome) -> list[str]:
    """Describes the overlap that shifts cannot remove."""
    if not shifts.links:
        return ["  no link has more load than capacity: nothing to interleave"]
    worst = max(shifts.links, key=lambda shared: shared.excess)
    topology = plain.traffic.topology
    ends = topology.links[worst.link]
    name = f"{topology.nodes[ends.src].name} -> {topology.nodes[ends.dst].name}"
    if worst.excess < 1e-6:
        return ["  with the shifts, the jobs do not overlap on any link that they share"]
    return [
        f"  {name} still has a load of {worst.excess:.1%} over its capacity on average "
        f"({worst.excess_before:.1%} without shifts)"
    ]


def _report(
    plain: Outcome, shifted: Outcome | None, shifts: Interleaving | None, unequal: Outcome | None
) -> dict[str, Any]:
    shown = shifted or plain
    topology = shown.traffic.topology
    jobs = []
    for number, job in enumerate(plain.traffic.jobs):
        row: dict[str, Any] = {
            "name": job.name,
            "iteration_seconds": plain.iteration_seconds(number),
            "iterations": plain.iterations(number).tolist(),
        }
        if shifted is not None and shifts is not None:
            row["interleaved"] = {
                "iteration_seconds": shifted.iteration_seconds(number),
                "iterations": shifted.iterations(number).tolist(),
                "shift": shifts.shifts[number].start,
                "period": shifts.shifts[number].period,
            }
        if unequal is not None:
            row["mltcp"] = {
                "iteration_seconds": unequal.iteration_seconds(number),
                "iterations": unequal.iterations(number).tolist(),
            }
        jobs.append(row)
    report: dict[str, Any] = {
        "topology": topology.name,
        "paths": str(shown.traffic.choice),
        "seed": shown.traffic.choice.seed,
        "seconds": plain.seconds,
        "interleaved_seconds": shifted.seconds if shifted else None,
        "mltcp_seconds": unequal.seconds if unequal else None,
        "jobs": jobs,
        "links": [
            {
                "link": link.id,
                "src": topology.nodes[link.src].name,
                "dst": topology.nodes[link.dst].name,
                "bytes": float(shown.carried[link.id]),
                "utilization": float(shown.utilization[link.id]),
            }
            for link in topology.links
        ],
    }
    if shifts is not None:
        report["shared_links"] = [
            {"link": shared.link, "jobs": list(shared.jobs), "excess": shared.excess, "before": shared.excess_before}
            for shared in shifts.links
        ]
    return report


COMMANDS = (
    Command(
        ("traffic",),
        "simulate several jobs on one network: paths, collisions, interleaving",
        "syntony traffic example --mltcp --heat-map heat.svg",
        _configure,
        _run,
    ),
)

"""`syntony place`: places axes of parallelism on a topology and finds their reductions (synth/placement/)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import unknown
from syntony.synth.commands.problem import add_timeout
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.placement.search import Candidate


def _configure(parser: argparse.ArgumentParser) -> None:
    add_topology(parser)
    parser.add_argument("--axes", required=True, metavar="AXES", help="axes and their sizes, such as dp4xtp8")
    parser.add_argument("--reduce", metavar="AXIS", help="the axes that sum, such as dp or dp,ep (default: the first)")
    parser.add_argument("--levels", metavar="SHAPE", help="levels, outermost first, such as 4x8 (default: found)")
    parser.add_argument("--size", type=size, default=1 << 30, metavar="BYTES", help="bytes to sum (default 1G)")
    parser.add_argument("--top", type=count, default=10, metavar="N", help="number of placements shown (default 10)")
    add_output(
        parser, "-o", "--output", metavar="F.json", help="write the best placement, rank by rank, and its program"
    )
    add_output(
        parser, "--program", metavar="P.json", help="write how a group sums in the best placement, as a Program to run"
    )
    add_timeout(parser, None)
    legend = (
        "dp[2 4]: dp spans two parts of the outermost level and four of the next.\n"
        "all_reduce[1]: sums among ranks that differ in part 1 of the axes that sum; part 0 is the outermost."
    )
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, legend)))


def _run(options: argparse.Namespace) -> int:
    from syntony.base.files.whole_file import write_text
    from syntony.base.progress import progress
    from syntony.synth.dsl.reductions import as_program
    from syntony.synth.formats.program_file import write_program
    from syntony.synth.model.collective import Collective
    from syntony.synth.placement.matrices import read_axes
    from syntony.synth.placement.search import search
    from syntony.synth.symmetry.levels import given_levels, levels_of
    from syntony.topologies.parse import parse

    topology = parse(options.topology)
    axes = read_axes(options.axes, topology.ranks)
    reduced = tuple(options.reduce.split(",")) if options.reduce else (axes[0].name,)
    for name in reduced:
        if name not in [axis.name for axis in axes]:
            raise UserError(f"--reduce: {unknown('axis', name, (axis.name for axis in axes))}")
    if options.levels:
        levels = given_levels(options.levels, topology.ranks)
    else:
        levels = levels_of(topology, Collective.make("all_gather", topology.ranks))
    with progress(f"placing {options.axes} on {topology.name}", options.timeout):
        candidates = search(topology, levels, axes, reduced, options.size)
    if not candidates:
        raise UserError(f"axes {options.axes} cannot be laid over levels {levels}")
    if options.output:
        write_text(options.output, json.dumps(_best(candidates[0], reduced), indent=1) + "\n")
    if options.program:
        write_program(
            as_program(candidates[0].program, candidates[0].placement.groups(reduced).shape[1:]), options.program
        )
    title = f"{options.axes} on {topology.name}, levels {levels} ({levels.source}); {','.join(reduced)} sums, simulated"
    lines = [title, *(line for candidate in candidates[: options.top] for line in _lines(candidate))]
    defaults = [candidate.default for candidate in candidates]
    if min(defaults) > 0:
        ratio = max(defaults) / min(defaults)
        lines.append(f"summing with one all_reduce, the best placement is {ratio:.1f} times as fast as the worst")
    lines += [wrote(path) for path in (options.output, options.program) if path]
    told = {
        "levels": list(levels.shape),
        "placements": [_row(candidate) for candidate in candidates],
        "file": str(options.output) if options.output else None,
        "program": str(options.program) if options.program else None,
    }
    tell(options, told, lines)
    return 0


def _lines(candidate: Candidate) -> Iterator[str]:
    from syntony.base.wording import time
    from syntony.synth.placement.reductions import describe

    gain = f"{candidate.speedup:.2f}x one all_reduce; best of {candidate.programs}"
    yield f"  {candidate.placement!s:<26} {time(candidate.seconds):>10}   {gain}"
    yield f"      {describe(candidate.program) or 'nothing to sum'}"


def _row(candidate: Candidate) -> dict[str, Any]:
    return {
        "factors": {
            axis.name: list(row)
            for axis, row in zip(candidate.placement.axes, candidate.placement.factors, strict=True)
        },
        "program": [
            {"collective": step.collective, "levels": list(step.levels), "leaders": step.leaders}
            for step in candidate.program
        ],
        "seconds": candidate.seconds,
        "all_reduce_seconds": candidate.default,
        "programs": candidate.programs,
    }


def _best(candidate: Candidate, reduced: tuple[str, ...]) -> dict[str, Any]:
    groups = candidate.placement.groups(reduced)
    steps = [[part for group in groups for part in step.groups(group).tolist()] for step in candidate.program]
    row = _row(candidate)
    for step, parts in zip(row["program"], steps, strict=True):
        step["groups"] = parts
    names = [axis.name for axis in candidate.placement.axes]
    ranks = [dict(zip(names, place, strict=True)) for place in candidate.placement.coordinates.tolist()]
    return row | {"ranks": ranks}


COMMANDS = (
    Command(
        ("place",),
        "map axes of parallelism to a topology, and find how to sum along each",
        "syntony place dgx-a100:2 --axes dp8xtp2 --size 256M",
        _configure,
        _run,
        limited=True,
    ),
)

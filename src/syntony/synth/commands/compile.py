"""`syntony compile`: turns an algorithm in a script into a proven Program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count, rank
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import counted

if TYPE_CHECKING:
    from syntony.synth.model.program import Program


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "script",
        metavar="SCRIPT.py[:NAME]",
        help="a script and, if it has several, which algorithm; or one of `syntony examples`",
    )
    parser.add_argument("--ranks", type=count, metavar="N", help="number of ranks (default: the script's)")
    parser.add_argument("--root", type=rank, metavar="R", help="root of a rooted collective (default: the script's)")
    parser.add_argument(
        "--instances", type=count, metavar="N", help="number of parallel instances (default: the script's)"
    )
    parser.add_argument("--as-written", action="store_true", help="do not optimize")
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.json",
        help="program file to write; `syntony convert` writes it in other formats",
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.synth.dsl.script import algorithm_of, as_user_error
    from syntony.synth.formats.program_file import write_program

    output: Path | None = options.output
    algorithm = algorithm_of(options.script)
    arguments = (options.ranks, options.root, options.instances)
    try:
        written = algorithm.as_written(*arguments)
        program = written if options.as_written else algorithm.program(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise as_user_error(error, Path(algorithm.function.__code__.co_filename)) from error
    lines = _story(written, program)
    if output is not None:
        write_program(program, output)
        lines.append(wrote(output))
    told = {
        "file": None if output is None else str(output),
        "name": program.name,
        "collective": program.collective,
        "ranks": program.ranks,
        "instructions": len(program.instructions),
        "instructions_as_written": len(written.instructions),
        "lanes": len(program.lane_start[0]),
        "fifo_depth": program.fifo_depth,
        "rounds_per_hop": program.rounds_per_hop,
        "in_place": program.in_place,
        "out_of_place": program.out_of_place,
    }
    tell(options, told, lines)
    return 0


def _story(written: Program, program: Program) -> list[str]:
    length = counted(len(program.instructions), "instruction")
    if len(program.instructions) < len(written.instructions):
        length += f" (written: {len(written.instructions)})"
    scratch = int((program.slots[:, 1] == 2).sum())
    lanes = counted(len(program.lane_start[0]), "lane")
    rounding = "sums are rounded at every hop" if program.rounds_per_hop else "each sum is rounded once"
    modes = " and ".join(["out of place"] * program.out_of_place + ["in place"] * program.in_place)
    return [
        f"{program.name} on {counted(program.ranks, 'rank')}: {length}, {lanes}, {counted(scratch, 'scratch slot')}",
        f"  proven  terminates at FIFO depth {program.fifo_depth}, without races; every output is",
        "          complete, and bitwise equal on all ranks that have it;",
        f"          {modes}; {rounding}",
    ]


COMMANDS = (
    Command(
        ("compile",),
        "compile an algorithm written by hand (`synth/dsl`), prove it, and write its program",
        "syntony compile ring --ranks 8",
        _configure,
        _run,
    ),
)

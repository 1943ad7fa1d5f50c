"""`syntony compile`: makes a proven Program of an algorithm in a script."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.arguments import count, rank
from syntony.base.command import Command, UserError
from syntony.base.wording import counted

if TYPE_CHECKING:
    from syntony.synth.model.program import Program


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="SCRIPT.py[:NAME]", help="a script and, if it has several, which algorithm")
    parser.add_argument("--ranks", type=count, metavar="N", help="number of ranks (default: the script's)")
    parser.add_argument("--root", type=rank, metavar="R", help="root of a rooted collective (default: the script's)")
    parser.add_argument(
        "--instances", type=count, metavar="N", help="number of parallel instances (default: the script's)"
    )
    parser.add_argument("--as-written", action="store_true", help="do not optimize")
    parser.add_argument(
        "-o", "--output", metavar="F.json", help="program file to write; `syntony convert` writes it in other formats"
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.synth.dsl.script import algorithm_of, as_user_error
    from syntony.synth.formats.program_file import write_program

    output = Path(options.output) if options.output else None
    if output is not None and not output.parent.is_dir():
        raise UserError(f"{output}: there is no folder {output.parent}")
    algorithm = algorithm_of(options.script)
    arguments = (options.ranks, options.root, options.instances)
    try:
        written = algorithm.as_written(*arguments)
        program = written if options.as_written else algorithm.program(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise as_user_error(error, Path(algorithm.function.__code__.co_filename)) from error
    print(_story(written, program))
    if output is not None:
        write_program(program, output)
        print(f"  file    {output}")
    return 0


def _story(written: Program, program: Program) -> str:
    length = counted(len(program.instructions), "instruction")
    if len(program.instructions) < len(written.instructions):
        length += f" (written: {len(written.instructions)})"
    scratch = int((program.slots[:, 1] == 2).sum())
    lanes = counted(len(program.lane_start[0]), "lane")
    rounding = "sums are rounded at every hop" if program.rounds_per_hop else "each sum is rounded once"
    modes = " and ".join(["out of place"] * program.out_of_place + ["in place"] * program.in_place)
    return "\n".join(
        [
            f"{program.name} on {counted(program.ranks, 'rank')}: {length}, {lanes}, "
            f"{counted(scratch, 'scratch slot')}",
            f"  proven  terminates at FIFO depth {program.fifo_depth}, without races; every output is complete,",
            f"          and bitwise equal on all ranks that have it; {modes}; {rounding}",
        ]
    )


COMMANDS = (
    Command(
        ("compile",),
        "compile an algorithm written by hand (`synth/dsl`), prove it, and write its program",
        "syntony compile src/syntony/synth/dsl/examples/ring.py --ranks 8",
        _configure,
        _run,
    ),
)

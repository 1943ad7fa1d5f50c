"""`syntony export p2p`: a schedule as a Python module that depends only on torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import counted

if TYPE_CHECKING:
    from syntony.synth.lowering.rounds import Rounds

_BUILDER = "builder:"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="F",
        help="a schedule or a program; or builder:ALGORITHM:COLLECTIVE with --ranks, such as builder:ring:all_reduce",
    )
    parser.add_argument("--ranks", type=count, metavar="N", help="ranks of a builder's algorithm")
    parser.add_argument("--in-place", action="store_true", help="input and output are the same memory (all_reduce)")
    add_output(
        parser, "-o", "--output", required=True, metavar="F.py", endings=(".py",), what="the module is Python",
        help="the module to write; run(input, output) in it runs the schedule",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    made = _rounds(options)
    write_text(options.output, module_text(made))
    slots = max((len(rank[2]) for rank in made.slots), default=0)
    told = {
        "file": str(options.output),
        "name": made.source.name,
        "collective": made.source.collective,
        "ranks": made.source.ranks,
        "launches": made.launches,
        "in_place": made.in_place,
    }
    lines = [
        f"{made.source.name}: {made.source.collective} on {counted(made.source.ranks, 'rank')}",
        f"  proven  {counted(made.launches, 'round')} of grouped messages, {counted(slots, 'chunk')} of scratch",
        f"  use     import {options.output.stem}; {options.output.stem}.run(input, output, group)",
    ]
    tell(options, told, [*lines, wrote(options.output)])
    return 0


def _rounds(options: argparse.Namespace) -> Rounds:
    from syntony.base.progress import progress
    from syntony.synth.checker.proofs import proven
    from syntony.synth.formats.loading import InvalidError, load
    from syntony.synth.lowering.rounds import rounds_of

    if options.file.startswith(_BUILDER):
        from syntony import _core

        algorithm, _, collective = options.file.removeprefix(_BUILDER).partition(":")
        known = {entry.name: entry.collectives for entry in _core.algorithms()}
        if collective not in known.get(algorithm, ()):
            raise UserError(f"{options.file}: there is no such algorithm; there are {', '.join(known)}")
        if options.ranks is None:
            raise UserError(f"{options.file}: say for how many ranks, such as --ranks 8")
        program = _core.build(algorithm, collective, options.ranks)
    else:
        program = load(options.file, options.ranks)
    with progress(f"proving {program.name} in rounds"):
        made = rounds_of(program, in_place=options.in_place)
        verdict = proven(made.program())
    if not verdict:
        raise InvalidError(f"{options.file}: in rounds: {verdict.fault}")
    return made


def module_text(made: Rounds) -> str:
    """The module: the executor's unchanged source, the rounds, and `run`."""
    source = Path(__file__).with_name("steps.py").read_text(encoding="utf-8")
    plan = json.dumps(made.to_dict(), separators=(",", ":"))
    return f"""{source}

PLAN: dict[str, Any] = json.loads(
    {plan!r}
)


def run(given: Tensor, wanted: Tensor, group: dist.ProcessGroup | None = None, op: Any = dist.ReduceOp.SUM) -> None:
    \"\"\"{made.source.collective} on {made.source.ranks} ranks, by "{made.source.name.replace(chr(34), "'")}".

    Both tensors are contiguous{"; they are the same one" if made.in_place else " and apart"}.
    \"\"\"
    Steps(PLAN, group).run(given.view(-1), wanted.view(-1), op)
""".replace("from typing import Any\n", "import json\nfrom typing import Any\n", 1)


COMMANDS = (
    Command(
        ("export", "p2p"),
        "write a schedule as a Python module of grouped sends, receives and sums, for any ProcessGroup",
        "syntony export p2p builder:ring:all_reduce --ranks 8 -o ring.py",
        _configure,
        _run,
    ),
)

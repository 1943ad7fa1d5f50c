"""`syntony repair`: repairs a schedule after a fault."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output
from syntony.synth.commands.found import add_explain, report_of, story_of
from syntony.synth.commands.problem import add_timeout

if TYPE_CHECKING:
    pass


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="OLD.json", help="schedule file for the whole machine")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="WHAT",
        help="a lost node (rank5, nic0.3, or a rank's number), a wire (0-1, rank0-nvswitch0) or one direction "
        "of a wire (0->1); may be repeated",
    )
    parser.add_argument(
        "--slowed",
        action="append",
        default=[],
        metavar="WIRE@PART",
        help="a wire with only a part of its bandwidth (0-1@50%%); may be repeated",
    )
    add_timeout(parser, 60.0)
    add_explain(parser)
    add_output(parser, "-o", "--output", metavar="NEW.json", help="schedule file to write")


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import Budget
    from syntony.synth.engines.repair import repair
    from syntony.synth.formats.loading import read
    from syntony.synth.model.schedule import Schedule

    if not options.without and not options.slowed:
        raise UserError("say what is lost or slow with --without or --slowed")
    old = read(options.file).content
    if not isinstance(old, Schedule):
        raise UserError(f"{options.file}: it is a program, which does not name links; repair needs a schedule")
    begin = time.monotonic()
    with progress(f"repair of {old.collective.kind} on {old.topology.name}", options.timeout):
        schedule = repair(old, options.without, options.slowed, Budget(options.timeout))
    report = report_of(schedule, options.output, time.monotonic() - begin)
    tell(options, report, story_of(schedule, report, options.explain))
    return 0


COMMAND = Command(
    ("repair",),
    "repair a schedule after a wire, NIC or rank was lost or became slower",
    "syntony repair allgather.json --without 0-1 -o mended.json",
    _configure,
    _run,
    limited=True,
)

"""The verb `trace`: what the ranks' flight recorders say together."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count, seconds
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.collectives.recorder.records import Dump


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="what SYNTONY_TRACE_DIR named when the job ran")
    parser.add_argument("--now", action="store_true", help="first ask the running ranks for fresh records")
    parser.add_argument("--wait", type=seconds, default=5.0, metavar="S", help="for them, with --now (default 5)")
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.json",
        endings=(".json",),
        what="a trace is JSON",
        help="write one trace of all ranks for Perfetto",
    )
    parser.add_argument("--table", action="store_true", help="show the last operations of every rank")
    parser.add_argument("--last", type=count, default=10, metavar="N", help="so many of each (default 10)")


def _trace(arguments: argparse.Namespace) -> int:
    from syntony.collectives.recorder.records import chrome_trace, findings, read_folder, table

    dumps = _fresh(arguments.folder, arguments.wait) if arguments.now else read_folder(arguments.folder)
    told = findings(dumps)
    if arguments.output is not None:
        chrome_trace(dumps).write(arguments.output)
    operations = sum(len(dump.operations) for dump in dumps)
    lines = [f"{len(dumps)} ranks, {operations} operations", *(told or ["all ranks have come equally far"])]
    lines += [table(dumps, arguments.last)] if arguments.table else []
    lines += [] if arguments.output is None else [wrote(arguments.output)]
    file = None if arguments.output is None else str(arguments.output)
    tell(arguments, {"findings": told, "ranks": [asdict(dump) for dump in dumps], "file": file}, lines)
    return int(bool(told))


def _fresh(folder: Path, patience: float) -> Sequence[Dump]:
    """Touches the file that ranks look for, and waits until all of them have answered or time is up."""
    from syntony.collectives.recorder.records import read_folder

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; it should be what SYNTONY_TRACE_DIR names")

    def there() -> Sequence[Dump]:
        return read_folder(folder) if any(folder.glob("syntony_rank_*")) else []

    before = {dump.rank: dump.wall for dump in there()}
    deadline = time.monotonic() + patience
    (folder / "now").touch()
    while time.monotonic() < deadline:
        time.sleep(0.1)
        dumps = there()
        members = {member for dump in dumps for group in dump.groups for member in group.members}
        if dumps and members <= {dump.rank for dump in dumps if dump.wall != before.get(dump.rank)}:
            break
    return read_folder(folder)


COMMANDS: tuple[Command, ...] = (
    Command(
        name=("trace",),
        summary="say which rank is behind, from the records that ranks leave in SYNTONY_TRACE_DIR",
        example="syntony trace /tmp/records -o trace.json",
        configure=_configure,
        run=_trace,
    ),
)

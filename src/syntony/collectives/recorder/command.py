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
    from syntony.collectives.recorder.slow import Slow


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="what SYNTONY_TRACE_DIR named when the job ran")
    parser.add_argument("--now", action="store_true", help="first ask the running ranks for fresh records")
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="S",
        help="ask them again every S seconds, and say who is slow, from the beginning of a job to its end",
    )
    parser.add_argument(
        "--wait", type=seconds, default=5.0, metavar="S", help="for them, with --now or --every (default 5)"
    )
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
    from syntony.collectives.recorder.slow import slow_ranks

    if arguments.every is not None:
        return _watch(arguments)
    dumps = _fresh(arguments.folder, arguments.wait) if arguments.now else read_folder(arguments.folder)
    told = findings(dumps) + [_labelled(one, dumps) for one in slow_ranks(dumps)]
    if arguments.output is not None:
        chrome_trace(dumps).write(arguments.output)
    operations = sum(len(dump.operations) for dump in dumps)
    lines = [f"{len(dumps)} ranks, {operations} operations", *(told or ["all ranks have come equally far"])]
    lines += table(dumps, arguments.last) if arguments.table else []
    lines += [] if arguments.output is None else [wrote(arguments.output)]
    file = None if arguments.output is None else str(arguments.output)
    tell(arguments, {"findings": told, "ranks": [asdict(dump) for dump in dumps], "file": file}, lines)
    return int(bool(told))


def _labelled(slow: Slow, dumps: Sequence[Dump]) -> str:
    groups = {group.name for dump in dumps for group in dump.groups}
    return f"group {slow.group}: {slow}" if len(groups) > 1 else str(slow)


def _watch(arguments: argparse.Namespace) -> int:
    """Says who is slow when that changes. Ends when no rank answers any more, and with 1 if a group has failed."""
    from syntony.collectives.recorder.slow import slow_ranks

    while not any(arguments.folder.glob("syntony_rank_*")):  # ranks may not have met yet: the first makes the folder
        if arguments.folder.is_dir():
            (arguments.folder / "now").touch()
        time.sleep(0.5)
    known: set[tuple[str, int]] | None = None
    answered: dict[int, float] = {}
    while True:
        begin = time.monotonic()
        dumps = _fresh(arguments.folder, arguments.wait)
        walls = {dump.rank: dump.wall for dump in dumps}
        failures = dict.fromkeys(group.failure for dump in dumps for group in dump.groups if group.failure)
        if failures or walls == answered:
            _say(*(f"ended because {why}" for why in failures) if failures else ("no rank answers any more",))
            return int(bool(failures))
        answered = walls
        slow = slow_ranks(dumps)
        now = {(one.group, one.rank) for one in slow}
        if now != known:
            _say(*(_labelled(one, dumps) for one in slow) if slow else (f"no rank of {len(dumps)} is slow",))
            known = now
        time.sleep(max(0.0, arguments.every - (time.monotonic() - begin)))


def _say(*sentences: str) -> None:
    """With the time of day: somebody may read them in the morning."""
    for sentence in sentences:
        print(time.strftime("%H:%M:%S"), sentence, flush=True)


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
        summary="say which rank is behind or slow, from the records that ranks leave in SYNTONY_TRACE_DIR",
        example="syntony trace /tmp/records -o trace.json",
        configure=_configure,
        run=_trace,
    ),
)

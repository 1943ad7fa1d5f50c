"""The command `trace`: combines and explains the flight records of all ranks."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

from syntony.base.answer import tell
from syntony.base.arguments import count, seconds
from syntony.base.command import Command
from syntony.base.outputs import add_output, wrote


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder that SYNTONY_TRACE_DIR named when the job ran"
    )
    parser.add_argument("--now", action="store_true", help="first ask the running ranks to write fresh records")
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="S",
        help="ask the running ranks every S seconds, and report slow ranks until the job ends",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=5.0,
        metavar="S",
        help="how long to wait for records, with --now or --every (default 5)",
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
    parser.add_argument(
        "--last", type=count, default=10, metavar="N", help="number of operations shown of each rank (default 10)"
    )


def _trace(arguments: argparse.Namespace) -> int:
    from syntony.collectives.recorder.fresh import fresh
    from syntony.collectives.recorder.records import chrome_trace, findings, read_folder, table
    from syntony.collectives.recorder.verdict import slow

    if arguments.every is not None:
        return _watch(arguments)
    dumps = fresh(arguments.folder, arguments.wait) if arguments.now else read_folder(arguments.folder)
    told = findings(dumps) + list(slow(dumps).values())
    if arguments.output is not None:
        chrome_trace(dumps).write(arguments.output)
    operations = sum(len(dump.operations) for dump in dumps)
    lines = [f"{len(dumps)} ranks, {operations} operations", *(told or ["all ranks have come equally far"])]
    lines += table(dumps, arguments.last) if arguments.table else []
    lines += [] if arguments.output is None else [wrote(arguments.output)]
    file = None if arguments.output is None else str(arguments.output)
    tell(arguments, {"findings": told, "ranks": [asdict(dump) for dump in dumps], "file": file}, lines)
    return int(bool(told))


def _watch(arguments: argparse.Namespace) -> int:
    """Reports who is slow whenever that changes. Ends when no rank answers any more; returns 1 if a group failed."""
    from syntony.collectives.recorder.fresh import fresh
    from syntony.collectives.recorder.verdict import slow

    while not any(arguments.folder.glob("syntony_rank_*")):  # the first rank creates the folder, maybe not yet
        if arguments.folder.is_dir():
            (arguments.folder / "now").touch()
        time.sleep(0.5)
    known: set[object] | None = None
    answered: dict[int, float] = {}
    while True:
        begin = time.monotonic()
        dumps = fresh(arguments.folder, arguments.wait)
        walls = {dump.rank: dump.wall for dump in dumps}
        failures = dict.fromkeys(group.failure for dump in dumps for group in dump.groups if group.failure)
        if failures or walls == answered:
            _say(*(f"ended because {why}" for why in failures) if failures else ("no rank answers any more",))
            return int(bool(failures))
        answered = walls
        told = slow(dumps)
        if set(told) != known:
            _say(*told.values() if told else (f"no rank of {len(dumps)} is slow, and no wire",))
            known = set(told)
        time.sleep(max(0.0, arguments.every - (time.monotonic() - begin)))


def _say(*sentences: str) -> None:
    """Prints with the time of day, for logs read later."""
    for sentence in sentences:
        print(time.strftime("%H:%M:%S"), sentence, flush=True)


COMMANDS: tuple[Command, ...] = (
    Command(
        name=("trace",),
        summary="find ranks that are behind or slow, from the records in SYNTONY_TRACE_DIR",
        example="syntony trace /tmp/records -o trace.json",
        configure=_configure,
        run=_trace,
    ),
)

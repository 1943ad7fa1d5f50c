"""`syntony portfolio`: schedules for a range of sizes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syntony.base.answer import tell
from syntony.base.arguments import size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, require_series, wrote
from syntony.base.wording import counted
from syntony.synth.commands.problem import add_limits, add_problem, problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--from", type=size, default=1 << 10, metavar="BYTES", dest="smallest", help="default 1K")
    parser.add_argument("--to", type=size, default=1 << 30, metavar="BYTES", dest="largest", help="default 1G")
    add_limits(parser, 300.0)
    add_output(
        parser, "-o", "--output", metavar="F.json", help="portfolio file to write; its schedules are written beside it"
    )


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.checker import check_schedule
    from syntony.synth.engines.auto import seconds_at
    from syntony.synth.engines.engine import Budget
    from syntony.synth.engines.portfolio import portfolio
    from syntony.synth.formats.portfolio_file import write

    if not 0 < options.smallest <= options.largest:
        raise UserError(f"--from {options.smallest} --to {options.largest}: sizes must be at least 1, and ascend")
    output: Path | None = options.output
    require_series(output, r"\d+", options.force)
    topology, collective = problem(options)
    begin = time.monotonic()
    with progress(f"portfolio of {collective.kind} on {topology.name}", options.timeout):
        found = portfolio(topology, collective, options.smallest, options.largest, Budget(options.timeout))
        for entry in found.entries:
            verdict = check_schedule(entry.schedule)
            if not verdict:
                raise AssertionError(f"engine {entry.schedule.engine} made a wrong schedule: {verdict.fault}")
    paths = write(found, output) if output is not None else [None] * (1 + len(found.entries))
    rows: list[dict[str, Any]] = []
    first = options.smallest
    for entry, path in zip(found.entries, paths[1:], strict=True):
        last = options.largest if entry.last is None else entry.last
        took = {at: seconds_at(entry.schedule, at) for at in (first, last)}
        fraction = {at: entry.schedule.bounds.seconds(at) / took[at] for at in took if entry.schedule.bounds}
        rows.append({
            "first": first,
            "last": entry.last,
            "engine": entry.schedule.engine,
            "steps": entry.schedule.steps,
            "file": str(path) if path is not None else None,
            "simulated": [{"size": at, "seconds": took[at], "fraction": fraction.get(at)} for at in took],
        })  # fmt: skip
        first = last + 1
    took_all = round(time.monotonic() - begin, 3)
    told = {"file": str(output) if output else None, "entries": rows, "seconds": took_all}
    tell(options, told, _lines(f"{collective.kind} on {topology.name}", rows, took_all, output))
    return 0


def _lines(title: str, rows: list[dict[str, Any]], took: float, output: Path | None) -> Iterator[str]:
    yield f"{title}: {counted(len(rows), 'schedule')}, each checked ({took:.1f} s); simulated at both ends of its range"
    yield f"  {'from':>10} {'to':>10}  {'engine':<10} {'steps':>5}  {'GB/s':>7} {'bound':>5}  {'GB/s':>7} {'bound':>5}"
    for row in rows:
        ends = "  ".join(
            f"{end['size'] / end['seconds'] / 1e9 if end['seconds'] else 0:7.4g} {end['fraction'] or 1:5.0%}"
            for end in row["simulated"]
        )
        last = "" if row["last"] is None else row["last"]
        yield f"  {row['first']:>10} {last:>10}  {row['engine']:<10} {row['steps']:>5}  {ends}"
    if output is not None:
        yield wrote(output, f"with {counted(len(rows), 'schedule')} beside it")


COMMANDS = (
    Command(
        ("portfolio",),
        "find the fastest schedule for every size, and write them to one file",
        "syntony portfolio ring:4 all_gather --to 64K -o ring.json",
        _configure,
        _run,
        limited=True,
    ),
)

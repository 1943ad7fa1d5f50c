"""The command `tune`: times every algorithm on a group and keeps the result for groups of the same kind."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count, seconds, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.progress import line
from syntony.base.wording import unknown

if TYPE_CHECKING:
    from syntony.collectives.bootstrap.launch import Exchange
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.tuner.measure import Measured
    from syntony.collectives.tuner.table import Table


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=count, metavar="N", help="start N ranks here (default 2; not under a launcher)")
    parser.add_argument(
        "--collectives",
        metavar="A,B",
        help="collectives to measure (default: all; the others keep their earlier table)",
    )
    parser.add_argument("--sizes", metavar="S,T", help="bytes to measure at, three or more (default: 8 to 8M, times 4)")
    parser.add_argument(
        "--schedule",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="a schedule, portfolio or Program file as one more candidate; may be repeated",
    )
    parser.add_argument(
        "--repeat",
        type=count,
        default=3,
        metavar="N",
        help="measure at most N times, until two in a row agree on what is best (default 3)",
    )
    parser.add_argument(
        "--keep-anyway", action="store_true", help="replace the earlier table even when measurements do not agree"
    )
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.toml",
        endings=(".toml",),
        what="a configuration is TOML",
        help="also write the result as a file for SYNTONY_CONFIG",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=120.0, metavar="S", help="time limit of each step (default 120)"
    )


def _tune(arguments: argparse.Namespace) -> int:
    from syntony.collectives.bootstrap.rendezvous import work_on_ranks
    from syntony.collectives.tuner import settings

    chosen = list(dict.fromkeys((arguments.collectives or ",".join(settings.algorithms())).split(",")))
    for name in chosen:
        if name not in settings.algorithms():
            raise UserError(f"--collectives: {unknown('collective', name, settings.algorithms())}")
    arguments.collectives = chosen
    arguments.sizes = _sizes(arguments.sizes)
    work = partial(_run, arguments=arguments)
    return work_on_ranks(arguments.ranks, work, arguments.timeout, 10 * arguments.timeout)


def _sizes(text: str | None) -> tuple[int, ...]:
    from syntony.collectives.tuner.measure import SIZES

    if text is None:
        return SIZES
    try:
        return tuple(sorted({size(one) for one in text.split(",")}))
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--sizes: {error}") from None


def _run(exchange: Exchange, arguments: argparse.Namespace) -> int:
    from syntony._core import CommunicationError
    from syntony.base.files.whole_file import write_bytes
    from syntony.collectives.bootstrap.launch import RankError
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.tuner import levels, report
    from syntony.collectives.tuner.measure import WrongResultError
    from syntony.collectives.tuner.table import Place, Table

    if exchange.size < 2:
        raise UserError("there is one rank only: nothing to choose")
    os.environ["SYNTONY_TUNE"] = "off"  # in this process: measuring needs no table
    try:
        with Communicator.create(exchange, timeout=arguments.timeout) as group:
            boxes, crowded, near = group.boxes, group.crowded, levels.find(group)
            if near:
                group._core.set_levels(near)
            measured, schedules = _measure(group, arguments)
    except (CommunicationError, WrongResultError) as error:
        raise RankError(str(error)) from error
    if exchange.rank != 0:
        return 0
    found = Table(Place.here(boxes), measured.costs, near)
    rules = found.rules()
    made = report.rows(found, rules, boxes, crowded)
    builders = {key: points for key, points in found.costs.items() if key.algorithm not in schedules}
    doubts = [
        doubt for doubt in (report.too_few(found), report.busy(found.place, measured.waited), measured.doubt) if doubt
    ]
    path, kept = _keep(Table(found.place, builders, near), sure=not doubts or arguments.keep_anyway)
    written = {"table": path} if path else {}
    used = {entry.algorithm for rule in rules for entry in rule.ranges} & set(schedules)
    if arguments.output is not None:
        paths = {name: schedules[name].resolve() for name in sorted(used)}
        write_bytes(arguments.output, report.as_config(rules, paths).encode())
        written["configuration"] = arguments.output
    lines = [
        report.as_text(found, made),
        *([f"levels: {', '.join(str(list(one)) for one in near)}"] if near else []),
        *doubts,
    ]
    if kept:
        lines.append(f"unsure, so the older table stays for {', '.join(kept)}; --keep-anyway replaces it")
    lines += [wrote(path, f"the {what}") for what, path in written.items()]
    if used and arguments.output is None:
        lines.append(
            f"the table holds no files: -o F.toml writes the ranges of {', '.join(sorted(used))} for SYNTONY_CONFIG"
        )
    told = report.as_json(found, made, written, measured.waited)
    tell(arguments, told | {"doubts": doubts, "kept_older": kept, "levels": near}, lines)
    return 0


def _keep(found: Table, sure: bool) -> tuple[Path | None, list[str]]:
    """Writes the table, merged with what is kept about collectives that were not measured now.

    If the results are not reliable (`sure`), a collective's older table stays. Returns the path (None if nothing new
    is left to write) and the collectives whose older table stays.
    """
    from syntony.collectives.tuner.table import load

    try:
        older = load(found.place)
    except UserError as error:
        print(f"syntony: {error}; it is made anew", file=sys.stderr)
        older = None
    kept = [] if sure or older is None else [name for name in found.collectives if name in older.collectives]
    new = found.without(kept)
    return (new.merged(older).write() if new.costs else None), kept


def _measure(group: Communicator, arguments: argparse.Namespace) -> tuple[Measured, dict[str, Path]]:
    """The costs of builders and of schedules, the latter under their files' names; and those files."""
    from syntony.collectives.tuner import settings
    from syntony.collectives.tuner.costs import Key
    from syntony.collectives.tuner.measure import Measured, measure_until_sure

    candidates = {collective: list(settings.algorithms()[collective]) for collective in arguments.collectives}
    schedules: dict[str, Path] = {}
    names: dict[str, str] = {}  # name in the group -> name of the file
    for path in arguments.schedule:
        collective = _collective_of(path)
        if collective not in candidates:
            raise UserError(f"{path}: it is for {collective}, which is not among --collectives")
        loaded, name = group.load(path), re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)
        if name in schedules or name in candidates[collective]:
            raise UserError(f"{path}: {name} is another candidate's name; rename the file")
        candidates[collective].append(loaded)
        schedules[name], names[loaded] = path, name

    points = len(candidates) * len(arguments.sizes)
    begin = 0.0
    round_: list[tuple[str, int]] = []

    def progress(collective: str, bytes_moved: int) -> None:
        nonlocal begin
        if (collective, bytes_moved) in round_[:1]:  # rounds end when two of them agree
            round_.clear()
        if not round_:
            begin = time.monotonic()
        share = len(round_) / points
        round_.append((collective, bytes_moved))
        if group.rank == 0 and sys.stderr.isatty():
            told = line(f"measuring {collective}, {bytes_moved} bytes", time.monotonic() - begin, share=share)
            print(f"\r\x1b[K{told} of this round", end="", file=sys.stderr, flush=True)

    measured = measure_until_sure(group, candidates, arguments.sizes, arguments.repeat, progress)
    if group.rank == 0 and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    costs = {
        Key(key.collective, names.get(key.algorithm, key.algorithm)): points for key, points in measured.costs.items()
    }
    return Measured(costs, measured.waited, measured.doubt), schedules


def _collective_of(path: Path) -> str:
    from syntony.synth.engines.portfolio import Portfolio
    from syntony.synth.formats.loading import read
    from syntony.synth.model.program import Program

    content = read(path).content
    if isinstance(content, Portfolio):
        content = content.entries[0].schedule
    return content.collective if isinstance(content, Program) else content.collective.kind


COMMANDS: tuple[Command, ...] = (
    Command(
        name=("tune",),
        summary="time every algorithm on this machine, and store the best one for each size",
        example="syntony tune --ranks 2 --collectives all_reduce --sizes 8,4K,1M",
        configure=_configure,
        run=_tune,
    ),
)

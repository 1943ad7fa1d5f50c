"""Loads a file as a Program that may run: nothing unproven leaves this module.

schedule JSON     -> check the Schedule -> lower to the Target -> check the Program
.msccl.json       -> check the Schedule -> lower to the Target -> check the Program
portfolio JSON    -> its schedules, one by one
program JSON      ------------------------------------------->  check the Program
MSCCL XML         ------------------------------------------->  check the Program
MSCCL++ plan      ------------------------------------------->  check the Program

A proven one-sided Program is converted to two-sided if the Target requires it, and is proven again. No file is trusted;
a proof is skipped only if it is in this user's own cache (`syntony.synth.checker.proofs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from syntony.base.command import UserError
from syntony.base.files.fields import FileError, parse_json
from syntony.base.files.text_file import decoded
from syntony.base.wording import counted
from syntony.synth.checker import Verdict, check_program, check_schedule
from syntony.synth.checker.proofs import proven
from syntony.synth.engines.portfolio import Portfolio
from syntony.synth.formats import portfolio_file, program_file, schedule_file
from syntony.synth.formats.msccl.json_file import is_algorithm, read_msccl_json
from syntony.synth.formats.msccl.xml_file import MscclError, read_msccl_xml
from syntony.synth.formats.mscclpp.plan import is_plan
from syntony.synth.formats.mscclpp.program import read_mscclpp
from syntony.synth.lowering.lower import lower
from syntony.synth.lowering.two_sided import needs_two_sides, two_sided
from syntony.synth.model.instructions import ProgramError
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CPU, Target, fit


class InvalidError(UserError):
    """A readable file that the checker rejects; the message is the first fault."""


@dataclass(frozen=True)
class Loaded:
    """The contents of a file: a Schedule, a Portfolio of them or a Program."""

    content: Schedule | Portfolio | Program


def read(path: str | Path) -> Loaded:
    """Reads a file in any of the formats above; UserError if it is in none of them or malformed."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return Loaded(read_msccl_xml(path))
    data = parse_json(decoded(raw, path), str(path))
    kind = data.get("format") if isinstance(data, dict) else None
    if kind == program_file.FORMAT:
        return Loaded(program_file.from_dict(data, str(path)))
    if kind == schedule_file.FORMAT:
        return Loaded(schedule_file.from_dict(data, str(path), path.parent))
    if kind == portfolio_file.FORMAT:
        return Loaded(portfolio_file.from_dict(data, str(path), path.parent))
    if is_plan(data):
        return Loaded(read_mscclpp(data, str(path)))
    if is_algorithm(data):
        return Loaded(read_msccl_json(data, str(path)))
    formats = ", ".join((schedule_file.FORMAT, portfolio_file.FORMAT, program_file.FORMAT))
    raise FileError(
        f'{path}: its "format" is none of {formats}, and it is '
        "not MSCCL XML, not an MSCCL++ plan, not an algorithm of msccl-tools"
    )


def verify(path: str | Path, fifo_depth: int | None = None) -> Verdict:
    """The checker's verdict on a file, without the cache. UserError if it cannot be read.

    A Schedule has no FIFOs; with `fifo_depth` its lowered Program is checked at that depth too.
    """
    try:
        content = read(path).content
    except (MscclError, ProgramError) as fault:
        return Verdict(valid=False, fault=str(fault))
    verdict = _verdict(content, fifo_depth)
    return replace(verdict, proven=_what(content)) if verdict else verdict


def _verdict(content: Schedule | Portfolio | Program, fifo_depth: int | None) -> Verdict:
    if isinstance(content, Program):
        return check_program(content, fifo_depth)
    verdict = Verdict(valid=True)
    for schedule in schedules_of(content):
        verdict = check_schedule(schedule)
        if verdict and fifo_depth is not None:
            verdict = check_program(lower(schedule, CPU), fifo_depth)
        if not verdict:
            break
    return verdict


def _what(content: Schedule | Portfolio | Program) -> str:
    if isinstance(content, Program):
        size = f"{counted(len(content.chunks), 'chunk')}, {counted(len(content.instructions), 'instruction')}"
        return f"{content.collective} of {counted(content.ranks, 'rank')}, {size}"
    schedules = schedules_of(content)
    first = schedules[0]
    if isinstance(content, Portfolio):
        size = counted(len(schedules), "schedule")
    else:
        size = f"{counted(len(first.collective.chunks), 'chunk')}, {counted(first.steps, 'step')}"
    return f"{first.collective.kind} on {first.topology.name}, {counted(first.collective.ranks, 'rank')}, {size}"


def schedules_of(content: Schedule | Portfolio) -> tuple[Schedule, ...]:
    """The schedule itself, or those of the portfolio."""
    return (content,) if isinstance(content, Schedule) else tuple(entry.schedule for entry in content.entries)


def load(path: str | Path, ranks: int | None = None, target: Target = CPU) -> Program:
    """The proven Program of a file, fitted to the Target; for `ranks` ranks if given.

    Raises UserError in one sentence: unreadable or malformed, rejected by the checker (InvalidError), made for another
    number of ranks, or beyond the Target.
    """
    return prove(read(path), path, ranks, target)


def prove(loaded: Loaded, path: str | Path, ranks: int | None = None, target: Target = CPU) -> Program:
    """`load` for a file that has already been read."""
    content = loaded.content
    if isinstance(content, Portfolio):
        raise UserError(
            f"{path}: it holds {counted(len(content.entries), 'schedule')}, by size; say one of their files"
        )
    is_schedule = isinstance(content, Schedule)
    found = content.collective.ranks if isinstance(content, Schedule) else content.ranks
    if ranks is not None and found != ranks:
        what = "schedule" if is_schedule else "program"
        raise UserError(f"{path}: the {what} is for {counted(found, 'rank')}, the group has {ranks}")
    if isinstance(content, Schedule):
        program = lower(prove_schedule(content, path), target)
    else:
        program = content
        if needs_two_sides(content, target):
            _require(proven(content), path)
            program = two_sided(content, target)
        program = fit(program, target)
    _require(proven(program), path)
    return program


def prove_schedule(schedule: Schedule, path: str | Path) -> Schedule:
    """The Schedule itself; InvalidError if the checker rejects it."""
    _require(check_schedule(schedule), path)
    return schedule


def _require(verdict: Verdict, path: str | Path) -> None:
    if not verdict:
        raise InvalidError(f"{path}: {verdict.fault}")

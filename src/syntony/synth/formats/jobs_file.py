"""Jobs files: which jobs share which network, in TOML.

    topology = "clos:leaves=2,hosts=4,spines=2"
    paths = "ecmp"          # single, ecmp, e-ecmp:K, spray, least-loaded (default ecmp)
    seed = 1                # of the hash (default 0)
    interleave = true       # also apply CASSINI's time shifts (default false)

    [[job]]
    name = "vision"
    members = "0-1,4-5"     # ranks of the topology, in the order of the pattern's members; or [0, 1, 4, 5]
    candidates = ["0-3"]    # where else it could be; the best place for all jobs together is taken (default none)
    pattern = "all_reduce:ring"
    size = "64M"
    compute = "40ms"        # per iteration, before its messages (default 0)
    iterations = 10         # (default 1)
    start = "5ms"           # when the first iteration begins (default 0)

    [[job]]
    schedule = "alltoall.json"   # instead of a pattern: a schedule, a program or MSCCL XML, beside this file
    ...

Error messages name the file, the line and the field.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from syntony.base import quantity
from syntony.base.arguments import size as read_size
from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError, shown
from syntony.base.files.text_file import parse_toml, read_text
from syntony.base.quantity import duration
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.patterns.table import pattern_messages
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

EXAMPLE = """\
topology = "clos:leaves=2,hosts=4,spines=2,oversubscription=2"
paths = "ecmp"
seed = 2
interleave = true

[[job]]
name = "vision"
members = "0-1,4-5"
pattern = "all_reduce:ring"
size = "64M"
compute = "120ms"
iterations = 6

[[job]]
name = "language"
members = "2-3,6-7"
pattern = "all_reduce:ring"
size = "64M"
compute = "120ms"
iterations = 6
"""

_MOST_ITERATIONS = 10_000
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class JobsFile:
    """The contents of a jobs file. `places`: by job, where it may be placed, its own members first."""

    topology: Topology
    jobs: tuple[Job, ...]
    choice: Choice
    interleave: bool
    places: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def movable(self) -> bool:
        """Whether some job has a choice of places."""
        return any(len(places) > 1 for places in self.places)


def read_jobs(path: str | Path) -> JobsFile:
    """Reads a jobs file. Raises UserError if it is unreadable or invalid."""
    return parse_jobs(read_text(path), Path(path))


def parse_jobs(text: str, path: Path) -> JobsFile:
    """Parses a jobs file; `path` is named in errors, and schedules are looked up beside it."""
    head = _Table(parse_toml(text, path), path, text, -1)
    topology = head.read("topology", lambda value: parse(_text(value)))
    seed = head.read("seed", _whole(0, 2**31 - 1), 0)
    choice = head.read("paths", lambda value: Choice.parse(_text(value), seed), Choice("ecmp", 1, seed))
    interleave = head.read("interleave", _flag, False)
    rows = head.read("job", _tables)
    head.finish()
    jobs, places = list[Job](), list[tuple[tuple[int, ...], ...]]()
    for number, row in enumerate(rows):
        table = _Table(row, path, text, number)
        job, others = _job(table, topology, [job.name for job in jobs], path.parent)
        jobs.append(job)
        places.append((job.members, *others))
    return JobsFile(topology, tuple(jobs), choice, interleave, tuple(places))


def _job(table: _Table, topology: Topology, taken: list[str], folder: Path) -> tuple[Job, tuple[tuple[int, ...], ...]]:
    """The job, and where else it could be."""
    name = table.read("name", _text, f"job{len(taken)}")
    if name in taken:
        raise table.wrong("name", "another job has it; every job has a name of its own")
    members = table.read("members", lambda value: _members(value, topology), tuple(range(topology.ranks)))
    nowhere: tuple[tuple[int, ...], ...] = ()
    candidates = table.read("candidates", lambda value: _candidates(value, topology, len(members)), nowhere)
    size = table.read("size", _size)
    if table.has("pattern") == table.has("schedule"):
        raise table.missing("a job has either a pattern or a schedule")
    if table.has("pattern"):
        messages = table.read("pattern", lambda value: pattern_messages(_text(value), len(members), size))
    else:
        messages = table.read("schedule", lambda value: _scheduled(folder / _text(value), len(members), size))
    compute = table.read("compute", _seconds, 0.0)
    iterations = table.read("iterations", _whole(1, _MOST_ITERATIONS), 1)
    start = table.read("start", _seconds, 0.0)
    table.finish()
    return Job(name, members, messages, iterations, compute, start), candidates


def _scheduled(path: Path, members: int, size: int) -> Messages:
    from syntony.synth.formats.loading import prove, read
    from syntony.synth.model.schedule import Schedule
    from syntony.synth.model.target import CONVERSION
    from syntony.synth.traffic.from_files import program_messages, schedule_messages

    loaded = read(path)
    if isinstance(loaded.content, Schedule):
        messages = schedule_messages(loaded.content, size)
    else:
        messages = program_messages(prove(loaded, path, target=CONVERSION), size)
    if messages.members != members:
        raise UserError(f"it is for {messages.members} ranks, but the job has {members} members")
    return messages


class _Table:
    """One table of the file: its fields are read one by one; `finish` rejects the fields left over."""

    def __init__(self, data: dict[str, Any], path: Path, text: str, job: int) -> None:
        self._data, self._path, self._job = data, path, job
        self._read: set[str] = set()
        self._lines = _lines_of(text, job)

    def has(self, key: str) -> bool:
        return key in self._data

    def read(self, key: str, reader: Callable[[Any], _T], default: _T | None = None) -> _T:
        """The field, parsed by `reader`, which raises ValueError or argparse's error with what would be right."""
        self._read.add(key)
        if key not in self._data:
            if default is None:
                raise self.missing(f'it has no "{key}"')
            return default
        try:
            return reader(self._data[key])
        except (ValueError, argparse.ArgumentTypeError) as error:  # UserErrors are ValueErrors
            raise self.wrong(key, str(error)) from None

    def finish(self) -> None:
        for key in self._data:
            if key not in self._read:
                raise self.wrong(key, f"there is no such field; the fields are {', '.join(sorted(self._read))}")

    def wrong(self, key: str, why: str) -> FileError:
        line = self._lines.get(key)
        value = shown(self._data[key]) if not isinstance(self._data[key], (dict, list)) else "given"
        return FileError(f"{self._place(line)}{key} is {value}: {why}")

    def missing(self, why: str) -> FileError:
        return FileError(f"{self._place(self._lines.get(''))}{why}")

    def _place(self, line: int | None) -> str:
        return f"{self._path}: " + (f"line {line}: " if line else "") + (f"job {self._job}: " if self._job >= 0 else "")


def _lines_of(text: str, job: int) -> dict[str, int]:
    """The line of every key of the file's head (job -1) or of its n-th [[job]]; "" is the line of the table itself."""
    found: dict[str, int] = {}
    table = -1  # the head; [[job]] after [[job]] follow
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*job\s*\]\]", line):
            table += 1
            if table == job:
                found[""] = number
        elif table == job and (key := re.match(r"""\s*["']?([\w-]+)["']?\s*[.=]""", line)):
            found.setdefault(key[1], number)
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be text in quotes")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it must be true or false")
    return value


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"it must be a whole number from {least} to {most}")
        return value

    return read


def _tables(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        raise ValueError("jobs are tables that begin with [[job]]")
    return value


def _size(value: object) -> int:
    if type(value) is int and value > 0:
        return value
    if isinstance(value, str):
        return read_size(value)
    raise ValueError('it must be a number of bytes, or text such as "64M"')


def _seconds(value: object) -> float:
    """Seconds, or text with a unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    if isinstance(value, str):
        with suppress(ValueError):
            return duration(value.replace(" ", ""))
    raise ValueError('it must be a number of seconds, or text such as "10ms"')


def _members(value: object, topology: Topology) -> tuple[int, ...]:
    if isinstance(value, str):
        members = [rank for part in value.split(",") for rank in _ranks(part.strip())]
    elif isinstance(value, list) and all(type(rank) is int for rank in value):
        members = value
    else:
        raise ValueError('it must be a list of ranks such as [0, 1], or text such as "0-7,16-23" or "0-63:8"')
    for rank in members:
        if not 0 <= rank < topology.ranks:
            raise ValueError(f"{rank} is not a rank of {topology.name}; its ranks are 0 to {topology.ranks - 1}")
    if len(set(members)) != len(members):
        raise ValueError("a rank is listed twice")
    return tuple(members)


def _candidates(value: object, topology: Topology, count: int) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        raise ValueError('it must be a list of what members can be, such as ["0-3", "4-7"]')
    found = tuple(_members(each, topology) for each in value)
    for members in found:
        if len(members) != count:
            raise ValueError(f"a candidate has {len(members)} ranks, but the job has {count} members")
    return found


def _ranks(text: str) -> range:
    try:
        return quantity.ranks(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is not {error}') from None

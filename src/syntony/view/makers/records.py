"""Records of jobs: our flight recorder's folders, and torch's flight-recorder pickles. Shows all ranks on one clock,
who is behind at which operation, and whom the others wait for.

    rank 0  [=== all_reduce #7 ===][all_reduce #8 ......      an unfinished operation extends to the time of the dump
    rank 1  [=== all_reduce #7 ===]                           and rank 1 has not reached #8: it is the late one
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted, in_ranges, time
from syntony.collectives.recorder.records import Operation, PlainUnpickler, findings, offsets, read_folder
from syntony.view.models import FAULT, Grid, Question, Tone, View, Words, timeline

_COLOURS = ("done", "not finished", "", "failed", "", "", "queued: nothing moves yet")
_DONE, _OPEN, _FAILED, _QUEUED = 0, 1, 3, 6
_MOST_SPANS = 400_000


@dataclass(frozen=True)
class Entry:
    """One operation of one rank; seconds on the common clock, None: not reached. `sequence` 0: a message."""

    group: str
    sequence: int
    name: str
    created: float
    started: float | None
    finished: float | None
    state: str
    told: str


@dataclass(frozen=True)
class Job:
    """Every rank's entries, the end of its record, and the members of each group (empty if the records lack them)."""

    entries: Mapping[int, Sequence[Entry]]
    ends: Mapping[int, float]
    members: Mapping[str, Sequence[int]]
    findings: Sequence[str]


def own(folder: str) -> View:
    """A folder of SYNTONY_TRACE_DIR."""
    dumps = read_folder(folder)
    shift = offsets(dumps)
    entries = {dump.rank: [_own_entry(one, shift[dump.rank]) for one in dump.operations] for dump in dumps}
    ends = {dump.rank: dump.monotonic + shift[dump.rank] for dump in dumps}
    members = {group.name: group.members for dump in dumps for group in dump.groups}
    return _view(Job(entries, ends, members, findings(dumps)), folder, "records of a job")


def _own_entry(one: Operation, shift: float) -> Entry:
    created, started, finished = (None if at is None else at + shift for at in (one.created, one.started, one.finished))
    told = f"{one.bytes} bytes of {one.dtype}, {one.algorithm or 'no algorithm yet'}, {one.state}"
    return Entry(one.group, one.sequence, str(one), created or 0.0, started, finished, one.state, told)


def torch(files: Sequence[str]) -> View:
    """Files of TORCH_NCCL_DEBUG_INFO_TEMP_FILE or of the debug server's `fr_trace_pickle`, one per rank.

    Pickles are read as plain values; one that would run code is refused.
    """
    entries: dict[int, list[Entry]] = {}
    members: dict[str, Sequence[int]] = {}
    ends: dict[int, float] = {}
    for position, file in enumerate(files):
        dump = _plain(file)
        rank = _rank_of(dump, file, position)
        if rank in entries:
            raise UserError(f"{file}: a second record of rank {rank}; give one of each")
        try:
            entries[rank] = [_torch_entry(one) for one in dump["entries"]]
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(f"{file}: an entry of this flight record is not as torch writes it: {error!r}") from None
        ends[rank] = max((one.finished or one.started or one.created for one in entries[rank]), default=0.0)
        members |= _groups_of(dump)
    last = max(ends.values())
    job = Job(entries, dict.fromkeys(entries, last), members, [])
    return _view(job, ", ".join(files), "torch flight records")


def is_torch(raw: bytes, path: Path) -> bool:
    """Whether the file begins like a pickle of protocol 2 or later, and its values are those of a flight record."""
    return (
        raw[:1] == b"\x80"
        and b"entries" in raw
        and (b"pg_config" in raw or b"collective_seq_id" in raw)
        and path.is_file()
    )


def is_folder(path: Path) -> bool:
    """Whether it is a folder of our records."""
    return path.is_dir() and any(re.fullmatch(r"syntony_rank_\d+", one.name) for one in path.iterdir())


def _plain(file: str) -> dict[str, Any]:
    try:
        found = PlainUnpickler(io.BytesIO(Path(file).read_bytes())).load()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except Exception as error:  # pickle raises anything
        raise UserError(f"{file}: no flight record: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise UserError(f"{file}: no flight record of torch's: it has no entries")
    return found


def _rank_of(dump: Mapping[str, Any], file: str, position: int) -> int:
    """Torch puts the rank at the end of the file's name."""
    if isinstance(dump.get("rank"), int):
        return int(dump["rank"])
    found = re.search(r"(\d+)$", Path(file).stem)
    return int(found[1]) if found else position


def _groups_of(dump: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    found: dict[str, Sequence[int]] = {}
    config = dump.get("pg_config")
    for group in config.values() if isinstance(config, dict) else ():
        ranks = re.findall(r"\d+", str(group.get("ranks", ""))) if isinstance(group, dict) else []
        if ranks:
            found[str(group.get("name", ""))] = [int(rank) for rank in ranks]
    return found


def _torch_entry(one: Mapping[str, Any]) -> Entry:
    group = one["process_group"][0] if isinstance(one.get("process_group"), tuple | list) else one.get("pg_name", "0")
    message = bool(one.get("is_p2p"))
    sequence = 0 if message else int(one.get("collective_seq_id", one.get("seq_id", 0)))
    name = str(one.get("profiling_name", "operation")).partition(":")[2] or str(one.get("profiling_name", "operation"))

    def moment(key: str) -> float | None:
        value = one.get(key)
        return value / 1e9 if isinstance(value, int | float) and value else None

    state = str(one.get("state", ""))
    created = moment("time_created_ns") or 0.0
    finished = moment("time_discovered_completed_ns")
    started = moment("time_discovered_started_ns") or (created if state == "completed" else None)
    frames = one.get("frames") or ()
    at = (
        f", at {Path(str(frames[0].get('filename', ''))).name}:{frames[0].get('line', '')}"
        if frames and isinstance(frames[0], dict)
        else ""
    )
    sizes = f"{one.get('input_sizes', '')} {one.get('input_dtypes', '')}"
    label = f"{name} #{sequence}" if sequence else name
    return Entry(str(group), sequence, label, created, started, finished, state, f"{state}, inputs {sizes}{at}")


def _view(job: Job, file: str, kind: str) -> View:
    ranks = sorted({*job.entries, *(rank for members in job.members.values() for rank in members)})
    behind, sentences = _behind(job)
    told = [*job.findings] or sentences
    missing = [rank for rank in ranks if rank not in job.entries]
    origin = min((one.created for own in job.entries.values() for one in own), default=0.0)
    rows = []
    for rank, own_entries in job.entries.items():
        for one in own_entries[-max(1, _MOST_SPANS // max(1, len(job.entries))) :]:
            end = one.finished if one.finished is not None else max(job.ends[rank], one.created)
            colour = _FAILED if one.state == "failed" else _DONE if one.state == "completed" else _OPEN
            moving = one.started if one.started is not None else end
            if moving > one.created:
                rows.append(
                    (rank, one.created, moving, colour if one.started is None and colour != _DONE else _QUEUED, one)
                )
            if one.started is not None:
                rows.append((rank, one.started, max(end, one.started), colour, one))
    place = {rank: at for at, rank in enumerate(ranks)}
    labels = list(dict.fromkeys(one.name for *_, one in rows)) or ["nothing"]
    number = {label: at for at, label in enumerate(labels)}
    lanes = timeline(
        "all ranks on one clock",
        [f"rank {rank}" + (" (no record)" if rank in missing else "") for rank in ranks],
        np.asarray([place[row[0]] for row in rows], np.int32),
        np.asarray([row[1] - origin for row in rows], np.float64),
        np.asarray([row[2] - origin for row in rows], np.float64),
        np.asarray([row[3] for row in rows], np.int64),
        np.asarray([number[row[4].name] for row in rows], np.int64),
        labels,
        _COLOURS,
        mark=np.asarray([FAULT if row[3] in (_OPEN, _FAILED) else 0 for row in rows], np.int64),
        details=[f"{row[4].name} of group {row[4].group}: {row[4].told}" for row in rows],
        late=[place[rank] for rank in {*missing, *behind}],
        clock=False,
        words="▸ marks who is behind or left no record. What had not ended reaches to the moment of the record.",
    )
    stands = Grid(
        "where every rank stands",
        ("rank", "last completed", "is in", "since", "waits for"),
        tuple(_stand(job, rank, origin) for rank in ranks),
        bad=tuple(place[rank] for rank in {*missing, *behind}),
    )
    lateness = _lateness(job)
    headline = (
        ". ".join(one[:1].upper() + one[1:] for one in told[:3]) + "." if told else "All ranks have come equally far."
    )
    late = [*missing, *behind]
    who = (
        f"{in_ranges(sorted(set(late))).capitalize()}: {headline}"
        if late
        else f"Nobody now. {lateness[1]}"
        if lateness[1]
        else headline
    )
    tone: Tone = "bad" if told else "good"
    findings_ = tuple((tone, one) for one in told or ["All ranks have come equally far."])
    lateness_panel = [lateness[0]] if lateness[0].rows else []
    return View(
        f"{kind}: {counted(len(ranks), 'rank')}",
        kind,
        file,
        headline,
        (lanes, stands, *lateness_panel, Words("findings", findings_)),
        tone,
        (
            ("ranks", str(len(ranks))),
            ("operations", str(sum(map(len, job.entries.values())))),
            ("groups", str(len({one.group for own_entries in job.entries.values() for one in own_entries}))),
        ),
        (
            Question("Who is late?", who, "where every rank stands"),
            Question("At which operation, waiting for what?", _waiting(job, ranks, origin), "all ranks on one clock"),
            Question(
                "Who usually comes last?",
                lateness[1] or "The records do not say.",
                lateness[0].title if lateness[0].rows else "",
            ),
        ),
    )


def _open(entries: Sequence[Entry]) -> Entry | None:
    """The oldest unfinished operation."""
    return next((one for one in entries if one.state not in ("completed",)), None)


def _absent(job: Job, rank: int, one: Entry) -> list[int]:
    """Members of the group that have not reached the operation, or left no record."""
    members = job.members.get(one.group) or sorted(job.entries)
    if not one.sequence:
        return []
    return [
        other
        for other in members
        if other != rank
        and not any(mine.group == one.group and mine.sequence >= one.sequence for mine in job.entries.get(other, ()))
    ]


def _stand(job: Job, rank: int, origin: float) -> tuple[str, ...]:
    entries = job.entries.get(rank)
    if entries is None:
        return (f"rank {rank}", "no record", "-", "-", "-")
    done = [one for one in entries if one.state == "completed"]
    open_ = _open(entries)
    if open_ is None:
        return (f"rank {rank}", done[-1].name if done else "nothing", "nothing", "-", "-")
    absent = _absent(job, rank, open_)
    since = time(max(0.0, job.ends[rank] - open_.created))
    return (
        f"rank {rank}",
        done[-1].name if done else "nothing",
        f"{open_.name} ({open_.state})",
        since,
        in_ranges(absent) if absent else "others that are in it too",
    )


def _waiting(job: Job, ranks: Sequence[int], origin: float) -> str:
    told = []
    for rank in ranks:
        open_ = _open(job.entries.get(rank, ()))
        if open_ is not None:
            absent = _absent(job, rank, open_)
            told.append((open_.name, tuple(absent), rank))
    if not told:
        return "No rank is in an operation."
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for name, missing, rank in told:
        groups.setdefault((name, missing), []).append(rank)
    return (
        "; ".join(
            f"{in_ranges(who)} in {name}, waiting for {in_ranges(missing) if missing else 'each other'}"
            for (name, missing), who in groups.items()
        ).capitalize()
        + "."
    )


def _behind(job: Job) -> tuple[list[int], list[str]]:
    """Ranks that have not reached the furthest operation of their group, and a sentence about it."""
    behind: set[int] = set()
    sentences = []
    for group in dict.fromkeys(one.group for entries in job.entries.values() for one in entries if one.sequence):
        stands = {
            rank: max((one.sequence for one in entries if one.group == group), default=0)
            for rank, entries in job.entries.items()
            if rank in (job.members.get(group) or job.entries)
        }
        furthest = max(stands.values())
        late = sorted(rank for rank, stand in stands.items() if stand < furthest)
        if late:
            behind |= set(late)
            ahead = [rank for rank, stand in stands.items() if stand == furthest]
            sentences.append(
                f"group {group}: {in_ranges(late)} came to #{min(stands.values())}, {in_ranges(ahead)} to #{furthest}"
            )
    return sorted(behind), sentences


def _lateness(job: Job) -> tuple[Grid, str]:
    """How much later than the first each rank reaches an operation, over operations that all have reached."""
    came: dict[tuple[str, int], dict[int, float]] = {}
    for rank, entries in job.entries.items():
        for one in entries:
            if one.sequence:
                came.setdefault((one.group, one.sequence), {})[rank] = one.created
    late: dict[int, list[float]] = {}
    last: dict[int, int] = {}
    for when in came.values():
        if len(when) < max(2, len(job.entries)):
            continue
        first = min(when.values())
        for rank, at in when.items():
            late.setdefault(rank, []).append(at - first)
        slowest = max(when, key=lambda rank: when[rank])
        last[slowest] = last.get(slowest, 0) + 1
    rows = tuple(
        (
            f"rank {rank}",
            str(len(found)),
            time(float(np.mean(found))),
            time(float(np.median(found))),
            time(max(found)),
            str(last.get(rank, 0)),
        )
        for rank, found in sorted(late.items())
    )
    grid = Grid(
        "who comes late to operations",
        ("rank", "operations", "late on average", "median", "at most", "times the last"),
        rows,
    )
    if not rows:
        return grid, ""
    worst = max(late, key=lambda rank: float(np.mean(late[rank])))
    return grid, (
        f"Of {len(late[worst])} operations that all ranks came to, rank {worst} was the latest on average: "
        f"{time(float(np.mean(late[worst])))} after the first, at most {time(max(late[worst]))}."
    )

"""The flight recorder's dumps: reads, compares and explains them.

A dump has one rank's last operations in all its groups and the progress of each. The core writes it as a pickle that
torch's analyzer can also read (csrc/core/recorder/recorder_dump.hpp says what is in it, and when it is written):

    SYNTONY_TRACE_DIR=DIR            every rank leaves `DIR/syntony_rank_N` when a group fails
    Communicator.dump(DIR)           on demand, from within; syntony.dump(DIR) does the same for torch's groups
    syntony trace DIR                who is behind, and one Perfetto file for all ranks
    torchfrtrace DIR                 torch's own analyzer
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syntony import _core
from syntony.base.command import UserError
from syntony.base.files.chrome_trace import ChromeTrace
from syntony.base.text_table import aligned

_FILE = re.compile(r"syntony_rank_(\d+)")


@dataclass(frozen=True)
class Operation:
    """One operation of one rank. Times are seconds of its host's monotonic clock, None if not reached yet."""

    group: str
    sequence: int  # of a collective, from 1; 0 for a message
    collective: str  # or "barrier", "send", "receive"
    dtype: str
    op: str
    algorithm: str
    peer: int  # the root; for a message the other end, -1 for any
    tag: int
    input_elements: int
    output_elements: int
    bytes: int
    state: str  # queued, admitted, started, completed, failed
    finished_by: str  # caller, engine, or nobody yet
    created: float
    started: float | None
    finished: float | None

    def __str__(self) -> str:
        if self.sequence == 0:
            return f"{self.collective} {'to' if self.collective == 'send' else 'from'} {self.peer}, tag {self.tag}"
        return f"{self.collective} #{self.sequence}"

    def agrees_with(self, other: Operation) -> bool:
        """Whether two ranks' operations with one sequence number can be the same, judging by their sizes."""
        mine, theirs = ((one.collective, one.dtype, one.op, one.peer) for one in (self, other))
        even = self.collective in ("all_reduce", "broadcast", "reduce")
        return mine == theirs and (not even or self.bytes == other.bytes)


@dataclass(frozen=True)
class WireSample:
    """The kernel's counters for the sending side of a data socket at one moment. Seconds, bytes."""

    at: float  # of the host's monotonic clock
    bytes: int  # acknowledged by the other end
    busy: float  # time with data in flight or waiting for the wire
    held: float  # the part of it in which the receiver had no room
    rate: int  # of delivery, bytes/s: the kernel's last estimate
    round_trip: float  # smoothed, including queueing
    resent: int  # packets


@dataclass(frozen=True)
class Wire:
    """The history of a data socket to another rank: recently about once a second, before that less often."""

    peer: int  # rank of the group
    flow: int  # index among the sockets to the peer
    samples: tuple[WireSample, ...]  # oldest first
    lost: bool = False  # it has ended before its group


@dataclass(frozen=True)
class GroupRecord:
    """One rank's end of a group."""

    name: str
    rank: int  # in the group
    members: tuple[int, ...]  # the ranks' numbers in the job
    launched: int  # collectives so far
    unrecorded: int  # operations that did not fit in the record
    failure: str  # why it ended, or ""
    clock_offset: float  # seconds to add to get the clock of the group's rank 0
    wires: tuple[Wire, ...] = ()


@dataclass(frozen=True)
class Dump:
    """The state of one rank of the job at one moment."""

    rank: int
    host: str
    process: int
    monotonic: float  # this moment, seconds
    wall: float  # the same moment, seconds since 1970
    groups: tuple[GroupRecord, ...]
    operations: tuple[Operation, ...]  # by time of creation


def _refuse(unpickler: object) -> None:
    raise pickle.UnpicklingError("it would run code or build objects; a dump holds plain data only")


class PlainUnpickler(pickle._Unpickler):
    """Reads values but no code, since a dump may come from anywhere.

    It has no opcodes that call anything, and it is in Python: the C unpickler allocates as much memory as the dump
    claims to need.
    """

    dispatch = {  # noqa: RUF012
        code: _refuse if code in b"cioRb\x81\x92\x93\x82\x83\x84PQ\x96\x97\x98" else read
        for code, read in pickle._Unpickler.dispatch.items()
    }


def parse(content: bytes, where: str = "the dump") -> Dump:
    """Raises UserError if the content is not one of our dumps."""
    try:
        raw: dict[str, Any] = PlainUnpickler(io.BytesIO(content)).load()
        operations = [_operation(entry) for entry in (*raw["entries"], *raw["messages"])]
        return _dump(raw, operations)
    except Exception as error:  # pickle raises anything; KeyError: an opcode that is not allowed here
        raise UserError(f"{where} is not a flight record of Syntony's: {type(error).__name__}: {error}") from None


def parse_own(content: bytes) -> Dump:
    """A dump that this process has just made, which can be trusted and is read fast: all but its operations."""
    return _dump(pickle.loads(content), ())


def _dump(raw: dict[str, Any], operations: Iterable[Operation]) -> Dump:
    return Dump(
        rank=int(raw["rank"]),
        host=str(raw["host"]),
        process=int(raw["process"]),
        monotonic=raw["monotonic"] / 1e9,
        wall=raw["wall"] / 1e9,
        groups=tuple(_group(group) for group in raw["groups"]),
        operations=tuple(sorted(operations, key=lambda operation: operation.created)),
    )


def _operation(entry: dict[str, Any]) -> Operation:
    return Operation(
        group=entry["process_group"][0],
        sequence=entry["collective_seq_id"],
        collective=entry["collective"],
        dtype=entry["dtype"],
        op=entry["op"],
        algorithm=entry["algorithm"],
        peer=entry["peer"],
        tag=int(entry["tag"]),
        input_elements=entry["input_sizes"][0][0],
        output_elements=entry["output_sizes"][0][0],
        bytes=entry["bytes"],
        state=entry["progress"],
        finished_by=entry["finished_by"],
        created=entry["created"] / 1e9,
        started=entry["started"] / 1e9 if entry["started"] else None,
        finished=entry["finished"] / 1e9 if entry["finished"] else None,
    )


def _group(raw: dict[str, Any]) -> GroupRecord:
    return GroupRecord(
        name=raw["name"],
        rank=raw["rank"],
        members=tuple(raw["members"]),
        launched=raw["launched"],
        unrecorded=raw["unrecorded"],
        failure=raw["failure"],
        clock_offset=raw["clock_offset"] / 1e9,
        wires=tuple(_wire(wire) for wire in raw.get("wires", ())),
    )


def _wire(raw: dict[str, Any]) -> Wire:
    samples = (
        WireSample(
            at=one["at"] / 1e9,
            bytes=one["bytes"],
            busy=one["busy"] / 1e6,
            held=one["held"] / 1e6,
            rate=one["rate"],
            round_trip=one["round_trip"] / 1e6,
            resent=one["resent"],
        )
        for one in raw["samples"]
    )
    return Wire(raw["peer"], raw["flow"], tuple(samples), raw.get("lost", False))


def read_folder(folder: str | Path) -> list[Dump]:
    """All ranks' dumps in a folder, by rank. Raises UserError if there are none, or one cannot be read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the one that SYNTONY_TRACE_DIR names")
    paths = [path for path in folder.iterdir() if _FILE.fullmatch(path.name)]
    if not paths:
        raise UserError(
            f"{folder} has no records (files syntony_rank_0, ..): ranks with SYNTONY_TRACE_DIR write there when a "
            "group fails, when `syntony trace --now` asks them, and with SYNTONY_TRACE_AT_END=1 at the end of a job"
        )
    return sorted((parse(path.read_bytes(), str(path)) for path in paths), key=lambda dump: dump.rank)


def dump(folder: str | Path) -> list[Path]:
    """Writes the record of every rank in this process, with all groups, whichever API made them."""
    return [Path(path) for path in _core.dump_records(str(folder))]


def counters() -> str:
    """The counters of all groups of this process in Prometheus' text format."""
    return _core.counters()


# ---- who is behind --------------------------------------------------------------------------------------------------


def findings(dumps: Sequence[Dump]) -> list[str]:
    """Sentences about what is wrong, group by group; none if all ranks have the same progress."""
    groups = list(dict.fromkeys((group.name, group.members) for dump in dumps for group in dump.groups))
    sentences = []
    for name, members in groups:
        label = f"group {name}: " if len(groups) > 1 else ""
        sentences += [label + sentence for sentence in _findings_of(name, members, dumps)]
    newest = max(dump.wall for dump in dumps)
    for dump in dumps:
        if newest - dump.wall > 60:
            sentences.append(
                f"rank {dump.rank}'s record is {newest - dump.wall:.0f} s older than the newest: "
                "perhaps it is from another run"
            )
    return sentences


def _findings_of(name: str, members: tuple[int, ...], dumps: Sequence[Dump]) -> Iterator[str]:
    records = {
        dump.rank: group for dump in dumps for group in dump.groups if (group.name, group.members) == (name, members)
    }
    of_rank = {
        dump.rank: {one.sequence: one for one in dump.operations if one.group == name and one.sequence > 0}
        for dump in dumps
        if dump.rank in records
    }
    for failure in dict.fromkeys(record.failure for record in records.values() if record.failure):
        yield f"ended because {failure}"
    if absent := [rank for rank in members if rank not in records]:
        yield f"{_ranks(absent)} left no record"
    for sequence in sorted({sequence for operations in of_rank.values() for sequence in operations}):
        there = {rank: operations[sequence] for rank, operations in of_rank.items() if sequence in operations}
        kinds: dict[str, list[int]] = {}
        first = next(iter(there.values()))
        if all(first.agrees_with(other) for other in there.values()):
            continue
        for rank, operation in there.items():
            what = f"{operation.collective} of {operation.bytes} bytes of {operation.dtype} ({operation.op})"
            if operation.peer:
                what += f", root {operation.peer}"
            kinds.setdefault(what, []).append(rank)
        few = sorted(kinds.items(), key=lambda item: len(item[1]))
        yield f"operation #{sequence} differs: " + "; ".join(f"{_ranks(who)}: {what}" for what, who in few)
        break  # later differences follow from this one
    # A rank's position is its oldest unfinished operation or, if it has none, after its last one.
    stands = {rank: _position(operations, records[rank].launched) for rank, operations in of_rank.items()}
    furthest = max(stands.values())
    for place in sorted(set(stands.values()) - {furthest}):
        behind = [rank for rank, stand in stands.items() if stand == place]
        ahead = [rank for rank, stand in stands.items() if stand == furthest]
        yield (
            f"{_ranks(behind)} {'is' if len(behind) == 1 else 'are'} {_stand(place, of_rank[behind[0]])}, "
            f"{'all others are' if len(ahead) + len(behind) == len(of_rank) else _ranks(ahead) + ' at most'} "
            f"{_stand(furthest, of_rank[ahead[0]])}"
        )


def _position(operations: dict[int, Operation], launched: int) -> tuple[int, bool]:
    """(sequence, past it): inside the oldest incomplete operation, or past the last completed one."""
    open_ = [sequence for sequence, operation in operations.items() if operation.state != "completed"]
    return (min(open_), False) if open_ else (launched, True)


def _stand(place: tuple[int, bool], operations: dict[int, Operation]) -> str:
    sequence, past = place
    what = str(operations[sequence]) if sequence in operations else f"#{sequence}"
    if sequence == 0:
        return "before its first operation"
    if past:
        return f"after {what}"
    operation = operations[sequence]
    return f"{'waiting in' if operation.state != 'failed' else 'stopped in'} {what}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


# ---- a table for people ---------------------------------------------------------------------------------------------


def table(dumps: Sequence[Dump], last: int = 10) -> list[str]:
    """The `last` operations of each rank, oldest first; times in milliseconds before the rank's dump."""
    head = (
        "rank", "group", "operation", "bytes", "dtype", "algorithm", "state", "age ms", "queued ms", "running ms", "by",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = [head]
    for dump in dumps:
        for one in dump.operations[-last:]:
            queued = (one.started or one.finished or dump.monotonic) - one.created
            running = 0.0 if one.started is None else (one.finished or dump.monotonic) - one.started
            times = (f"{1e3 * time:.3f}" for time in (dump.monotonic - one.created, queued, running))
            rows.append(
                (dump.rank, one.group, one, one.bytes, one.dtype, one.algorithm, one.state, *times, one.finished_by)
            )
    return aligned(rows, "<<<><<<>>><")


# ---- one time axis --------------------------------------------------------------------------------------------------


def offsets(dumps: Sequence[Dump]) -> dict[int, float]:
    """Seconds to add to each rank's monotonic clock to get the clock of rank 0 of the largest group.

    The group's clocks were compared soon after it was made (csrc/core/tcp/tcp_clock.cpp). A rank outside it shares its
    host's clock with a member; failing that, its wall clock is used.
    """
    base = max((group for dump in dumps for group in dump.groups), key=lambda group: len(group.members)).members
    found: dict[int, float] = {}
    for dump in dumps:
        for group in dump.groups:
            if group.members == base:
                found.setdefault(dump.rank, group.clock_offset)
    of_host = {dump.host: found[dump.rank] for dump in dumps if dump.rank in found}
    first = next(dump for dump in dumps if dump.rank in found)
    wall = first.wall - (first.monotonic + found[first.rank])
    for dump in dumps:
        found.setdefault(dump.rank, of_host.get(dump.host, dump.wall - wall - dump.monotonic))
    return found


_TOLD = ("state", "algorithm", "dtype", "op", "bytes", "peer", "finished_by")


def chrome_trace(dumps: Sequence[Dump]) -> ChromeTrace:
    """All ranks as a Chrome trace (chrome://tracing, Perfetto): a process per rank, rows per group.

    Overlapping operations get separate rows; the time before any data moved is a separate box, `queued`. Unfinished
    operations end with the dump.
    """
    shift = offsets(dumps)
    origin = min((one.created + shift[dump.rank] for dump in dumps for one in dump.operations), default=0.0)
    trace = ChromeTrace()
    for dump in dumps:
        trace.name_process(dump.rank, f"rank {dump.rank} (process {dump.process} on {dump.host})")
        rows: dict[tuple[str, int], int] = {}
        free: dict[str, list[float]] = {}  # by group: when each of its rows is free
        for one in dump.operations:
            end = one.finished or dump.monotonic
            ends = free.setdefault(one.group, [])
            place = next((place for place, since in enumerate(ends) if since <= one.created), len(ends))
            ends[place : place + 1] = [end]
            row = rows.setdefault((one.group, place), len(rows))
            if row == len(rows) - 1 and place == len(ends) - 1:
                trace.name_row(dump.rank, row, f"group {one.group}" + (f" ({place + 1})" if place else ""))
            since = shift[dump.rank] - origin
            told = {name: getattr(one, name) for name in _TOLD}
            trace.box(dump.rank, row, str(one), one.created + since, max(one.created, end) + since, **told)
            moving = one.started or end
            if moving > one.created:
                trace.box(dump.rank, row, "queued", one.created + since, moving + since)
    return trace

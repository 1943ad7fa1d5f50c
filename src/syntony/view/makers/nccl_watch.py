"""Monitors of NCCL: the JSON of its Inspector (an object per collective) and of RAS (which ranks answer)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syntony.base.command import UserError
from syntony.base.files.strict_json import parse as parse_json
from syntony.base.files.text_file import read_text
from syntony.base.wording import counted, in_ranges, rate, time
from syntony.view.models import Curves, Grid, Question, Series, Tone, View, Words
from syntony.view.wording import size_name


def inspector_lines(head: str) -> bool:
    """Whether the text begins with an Inspector's record."""
    return head.startswith("{") and '"coll_perf"' in head and '"header"' in head


def inspector(files: Sequence[str]) -> View:
    """NCCL Inspector's files: JSON objects one after another, each a collective of one rank."""
    records = [
        one for file in files for one in _objects(read_text(file), file) if isinstance(one.get("coll_perf"), dict)
    ]
    if not records:
        raise UserError(f"{files[0]}: no collective is in it")
    by: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in records:
        perf = one["coll_perf"]
        by.setdefault((str(perf.get("coll")), int(perf.get("coll_msg_size_bytes", 0))), []).append(one)
    kinds = sorted({kind for kind, _ in by})
    rows, series = [], []
    for kind in kinds:
        sizes = sorted(size for one, size in by if one == kind)
        bands = [
            np.asarray([float(one["coll_perf"].get("coll_busbw_gbs", 0.0)) * 1e9 for one in by[kind, size]])
            for size in sizes
        ]
        times = [
            np.asarray([float(one["coll_perf"].get("coll_exec_time_us", 0.0)) * 1e-6 for one in by[kind, size]])
            for size in sizes
        ]
        series.append(
            Series(
                kind,
                np.asarray(sizes, float),
                np.asarray([band.mean() for band in bands]),
                low=np.asarray([band.min() for band in bands]),
                high=np.asarray([band.max() for band in bands]),
            )
        )
        rows += [
            (
                kind,
                size_name(size),
                str(len(took)),
                time(float(np.median(took))),
                time(float(took.min())),
                time(float(took.max())),
                rate(float(band.mean())),
            )
            for size, took, band in zip(sizes, times, bands, strict=True)
        ]
    slow = _slow_ranks(records)
    who = (
        f"Rank {slow[0][0]} takes {slow[0][1]:.3f} times the median of its collectives, on average."
        if slow
        else "The records name one rank only."
    )
    ranks = {one.get("header", {}).get("rank") for one in records}
    hosts = {str(one.get("metadata", {}).get("hostname", "?")) for one in records}
    table = Grid(
        "by rank",
        ("rank", "collectives", "times the median"),
        tuple((f"rank {rank}", str(count), f"{ratio:.3f}") for rank, ratio, count in slow),
        best=(),
    )
    return View(
        f"NCCL Inspector: {', '.join(kinds)}",
        "NCCL Inspector",
        ", ".join(files),
        f"{counted(len(records), 'collective')} of {counted(len(ranks), 'rank')}. {who}",
        (
            Curves(
                "bus bandwidth over size",
                ("size", "bytes"),
                ("busbw", "rate"),
                tuple(series),
                log_x=True,
                words="Means; bands reach from the least to the most.",
            ),
            Grid("collectives", ("collective", "size", "times", "median", "least", "most", "busbw"), tuple(rows)),
            table,
        ),
        facts=(("hosts", str(len(hosts))), ("collectives", str(len(records)))),
        questions=(Question("Who is late?", who, "by rank"),),
    )


def _slow_ranks(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, int]]:
    """Ranks by how long their collectives take, relative to the median of all ranks in the same one; slowest first."""
    same: dict[tuple[object, object], dict[int, float]] = {}
    for one in records:
        perf, header = one["coll_perf"], one.get("header", {})
        same.setdefault((header.get("id"), perf.get("coll_sn")), {})[int(header.get("rank", 0))] = float(
            perf.get("coll_exec_time_us", 0.0)
        )
    ratios: dict[int, list[float]] = {}
    for took in same.values():
        middle = float(np.median(list(took.values())))
        for rank, one_took in took.items():
            if len(took) > 1 and middle:
                ratios.setdefault(rank, []).append(one_took / middle)
    return sorted(
        ((rank, float(np.mean(found)), len(found)) for rank, found in ratios.items()), key=lambda one: -one[1]
    )


def _objects(text: str, file: str) -> list[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    found: list[dict[str, Any]] = []
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,[]":
            at += 1
        if at >= len(text):
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if found:
                break  # a killed job leaves an incomplete object
            raise UserError(f"{file}: not JSON at line {text.count(chr(10), 0, at) + 1}") from None
        if isinstance(value, dict):
            found.append(value)
    return found


# ---- RAS ------------------------------------------------------------------------------------------------------------


def is_ras(data: object) -> bool:
    """Whether a JSON value is an answer of NCCL's RAS (`ncclras -f json`)."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("communicators"), list)
        and ("ras" in data or "nccl_version" in data)
    )


def ras(file: str) -> View:
    """RAS: communicators, missing or dead ranks, and ranks with different counts of collectives."""
    data: Any = parse_json(read_text(file), file, "RAS report")
    rows: list[tuple[str, ...]] = []
    lines: list[tuple[Tone, str]] = []
    for number, comm in enumerate(data["communicators"]):
        if not isinstance(comm, dict):
            raise UserError(f"{file}: communicators[{number}] is not an object")
        name = str(comm.get("hash", number))
        ranks = [one for one in comm.get("ranks", ()) if isinstance(one, dict)]
        missing = [one for one in comm.get("missing_ranks", ()) if isinstance(one, dict)]
        counts = {int(one.get("rank", at)): one.get("collective_counts") or {} for at, one in enumerate(ranks)}
        totals = {
            rank: sum(int(value) for value in told.values() if isinstance(value, int)) if isinstance(told, dict) else 0
            for rank, told in counts.items()
        }
        furthest = max(totals.values(), default=0)
        late = sorted(rank for rank, total in totals.items() if total < furthest)
        if late:
            lines.append(
                (
                    "bad",
                    f"communicator {name}: {in_ranges(late)} launched {totals[late[0]]} collectives, others {furthest}",
                )
            )
        for one in missing:
            place = f"process {one.get('pid', '?')} on {one.get('host', '?')}"
            dead = (
                "considered dead"
                if one.get("considered_dead")
                else "unresponsive"
                if one.get("unresponsive")
                else "missing"
            )
            lines.append(
                (
                    "bad",
                    f"communicator {name}: rank {one.get('rank')} is {dead} ({place})",
                )
            )
        for one in ranks:
            status: Any = one.get("status") if isinstance(one.get("status"), dict) else one
            rank = int(one.get("rank", 0))
            state = (
                ", ".join(
                    f"{key} {status[key]}"
                    for key in ("init_state", "async_error", "abort_flag", "finalize_called")
                    if status.get(key)
                )
                or "running"
            )
            rows.append(
                (
                    name,
                    f"rank {rank}",
                    str(one.get("host", "-")),
                    str(one.get("pid", "-")),
                    str(totals.get(rank, "-")),
                    state,
                    "behind" if rank in late else "",
                )
            )
        rows += [
            (
                name,
                f"rank {one.get('rank')}",
                str(one.get("host", "-")),
                str(one.get("pid", "-")),
                "-",
                "no answer",
                "missing",
            )
            for one in missing
        ]
    headline = (
        ". ".join(text for _, text in lines[:3]) + "."
        if lines
        else "All ranks answer and have launched equally many collectives."
    )
    return View(
        f"NCCL RAS: {counted(len(data['communicators']), 'communicator')}",
        "NCCL RAS",
        file,
        headline,
        (
            Words("findings", tuple(lines) or (("good", headline),)),
            Grid(
                "ranks",
                ("communicator", "rank", "host", "process", "collectives", "state", ""),
                tuple(rows),
                bad=tuple(at for at, row in enumerate(rows) if row[6]),
            ),
        ),
        "bad" if lines else "good",
        (("NCCL", str(data.get("nccl_version", "unknown"))), ("communicators", str(len(data["communicators"])))),
        (Question("Who is late?", headline, "findings"),),
    )

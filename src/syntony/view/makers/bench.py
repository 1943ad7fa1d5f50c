"""Benchmark results: our JSON and CSV, nccl-tests' JSON and text, OSU's text. Several files form one comparison.

results ──rows──▶ Row (contender, size, seconds, spread) ──▶ busbw and time over size, ratio to the best, a table
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from syntony.base.command import UserError
from syntony.base.files.strict_json import parse as parse_json
from syntony.base.files.text_file import read_text
from syntony.base.wording import counted, rate, time
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import KINDS, Collective
from syntony.topologies.topology import Topology
from syntony.view.models import Curves, Grid, Panel, Question, Series, View, Words
from syntony.view.wording import size_name

CSV_HEAD = "collective,size,count,type"
NCCL_HEAD = re.compile(r"^#\s+size\s+count\s+type", re.MULTILINE)
OSU_HEAD = re.compile(r"^# OSU ", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One measurement; seconds and bytes/s, `None` if the file does not say."""

    contender: str
    form: str
    size: int
    mean: float
    least: float | None = None
    p50: float | None = None
    p99: float | None = None
    most: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    wrong: str = ""


@dataclass(frozen=True)
class Contest:
    """The contents of one file."""

    collective: str
    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    ranks: int = 0


def view(files: Sequence[str], topology: Topology | None) -> View:
    """Shows the rows of all files together. Raises UserError for a file without rows."""
    contests = [_read(file) for file in files]
    rows = [
        replace(row, contender=f"{row.contender} ({_label(file, files)})" if len(files) > 1 else row.contender)
        for file, contest in zip(files, contests, strict=True)
        for row in contest.rows
    ]
    kinds = sorted({contest.collective for contest in contests})
    apart = {row.contender for row in rows if row.form == "out-of-place"}
    shown = [
        row if row.contender in apart else replace(row, contender=f"{row.contender}, {row.form}")
        for row in rows
        if row.form == "out-of-place" or row.contender not in apart
    ]
    names = list(dict.fromkeys(row.contender for row in shown))
    by = {name: sorted((row for row in shown if row.contender == name), key=lambda row: row.size) for name in names}
    best: dict[int, float] = {}
    for row in shown:
        best[row.size] = min(best.get(row.size, math.inf), row.mean)
    limit = _limit(kinds, topology, max((contest.ranks for contest in contests), default=0))
    panels: list[Panel] = [
        *_bandwidth(by, limit),
        Curves(
            "time over size",
            ("size", "bytes"),
            ("time", "seconds"),
            tuple(_curve(name, mine, [row.mean for row in mine], spread=True) for name, mine in by.items()),
            log_x=True,
            log_y=True,
            words="Means; bands reach from the least to the most (or to p99) where the file says so.",
        ),
    ]
    if len(names) > 1:
        panels.append(
            Curves(
                "times the best",
                ("size", "bytes"),
                ("time over the best", "ratio"),
                tuple(_curve(name, mine, [row.mean / best[row.size] for row in mine]) for name, mine in by.items()),
                log_x=True,
                log_y=True,
                words="1 is the fastest contender at that size.",
            )
        )
    panels += [_table(rows, best), _words(contests)]
    wins, headline = _winners(by, best)
    facts = tuple(dict.fromkeys(fact for contest in contests for fact in contest.facts))
    questions = [Question("Who is fastest?", headline, "times the best" if len(names) > 1 else "time over size")]
    spread = _spread(by)
    if spread:
        questions.append(Question("Whose times vary?", spread, "time over size"))
    if limit:
        questions.append(Question("How far from the limit?", _reached(by, limit), "bus bandwidth over size"))
    return View(
        f"{' and '.join(kinds)}: {', '.join(names[:4])}{' ..' if len(names) > 4 else ''}",
        "bench results",
        ", ".join(files),
        headline,
        tuple(panels),
        "bad" if any(row.wrong not in ("", "0", "N/A") for row in rows) else "plain",
        (
            ("contenders", str(len(names))),
            ("sizes", str(len(best))),
            *facts[:8],
            *(("wins", wins) for _ in [0] if wins),
        ),
        tuple(questions),
    )


def _label(file: str, files: Sequence[str]) -> str:
    stems = [Path(one).stem for one in files]
    return Path(file).stem if stems.count(Path(file).stem) == 1 else file


def _curve(name: str, rows: Sequence[Row], values: Sequence[float], spread: bool = False) -> Series:
    low = [row.least for row in rows]
    high = [row.most if row.most is not None else row.p99 for row in rows]
    told = spread and all(value is not None for value in (*low, *high))
    return Series(
        name,
        np.asarray([row.size for row in rows], float),
        np.asarray(values, float),
        low=np.asarray(low, float) if told else None,
        high=np.asarray(high, float) if told else None,
    )


def _bandwidth(by: Mapping[str, Sequence[Row]], limit: float | None) -> Iterator[Panel]:
    for word, what in (("busbw", "bus bandwidth"), ("algbw", "bandwidth")):
        mine = {name: [row for row in rows if getattr(row, word) is not None] for name, rows in by.items()}
        series = [_curve(name, rows, [getattr(row, word) for row in rows]) for name, rows in mine.items() if rows]
        if not series:
            continue
        if limit and word == "busbw":
            axis = np.asarray(sorted({row.size for rows in by.values() for row in rows}), float)
            series.append(Series("limit of the wires", axis, np.full(len(axis), limit), limit=True))
        yield Curves(f"{what} over size", ("size", "bytes"), (word, "rate"), tuple(series), log_x=True)
        return


def _limit(kinds: Sequence[str], topology: Topology | None, ranks: int) -> float | None:
    """The upper bound on busbw on the topology, bytes/s."""
    if topology is None:
        return None
    if len(kinds) != 1 or kinds[0] not in KINDS:
        raise UserError(
            f"--topology {topology.name}: it limits one collective, and the files are of {', '.join(kinds)}"
        )
    if ranks and ranks != topology.ranks:
        raise UserError(
            f"--topology {topology.name}: it has {counted(topology.ranks, 'rank')}, the results are of {ranks}"
        )
    collective = Collective.make(kinds[0], topology.ranks)
    return bounds_of(topology, collective).throughput.algbw * float(collective.bus_factor)


def _winners(by: Mapping[str, Sequence[Row]], best: Mapping[int, float]) -> tuple[str, str]:
    largest = max(best)
    wins = {name: sum(row.mean <= best[row.size] for row in rows) for name, rows in by.items()}
    order = sorted(wins, key=lambda name: -wins[name])
    first = order[0]
    at = {name: row.mean for name, rows in by.items() for row in rows if row.size == largest}
    top = min(at, key=lambda name: at[name])
    if len(by) == 1:
        row = by[first][-1]
        reached = f", {rate(row.busbw)} busbw" if row.busbw else ""
        return "", f"{first}: {time(row.mean)} at {size_name(largest)}{reached}."
    rivals = sorted((took, name) for name, took in at.items() if name != top)
    ahead = (
        f"; at {size_name(largest)} {top} is {rivals[0][0] / at[top]:.2f} times as fast as {rivals[0][1]}"
        if rivals
        else ""
    )
    return (
        ", ".join(f"{name} {wins[name]}" for name in order),
        f"{first} is the fastest at {wins[first]} of {counted(len(best), 'size')}{ahead}.",
    )


def _spread(by: Mapping[str, Sequence[Row]]) -> str:
    found = [
        (row.p99 / row.p50, name, row.size) for name, rows in by.items() for row in rows if row.p99 and row.p50
    ] or [(row.most / row.least, name, row.size) for name, rows in by.items() for row in rows if row.most and row.least]
    if not found:
        return ""
    worst, name, size = max(found)
    return f"{name} at {size_name(size)} most: its slowest times are {worst:.2f} times its usual ones."


def _reached(by: Mapping[str, Sequence[Row]], limit: float) -> str:
    found = [(row.busbw or 0.0, name, row.size) for name, rows in by.items() for row in rows]
    top, name, size = max(found)
    return f"{name} comes nearest: {rate(top)} at {size_name(size)}, {top / limit:.1%} of {rate(limit)}."


def _table(rows: Sequence[Row], best: Mapping[int, float]) -> Grid:
    def cell(value: float | None, words: Any) -> str:
        return "-" if value is None else str(words(value))

    told = []
    for row in sorted(rows, key=lambda row: (row.size, row.contender, row.form)):
        bands = (row.algbw, row.busbw)
        told.append(
            (
                size_name(row.size),
                row.contender,
                row.form,
                *(cell(one, time) for one in (row.mean, row.p50, row.p99, row.least, row.most)),
                *(cell(one, rate) for one in bands),
                f"{row.mean / best[row.size]:.2f}" if row.size in best else "-",
                row.wrong or "-",
            )
        )
    ordered = sorted(rows, key=lambda row: (row.size, row.contender, row.form))
    return Grid(
        "all rows",
        (
            "size",
            "contender",
            "form",
            "mean",
            "p50",
            "p99",
            "least",
            "most",
            "algbw",
            "busbw",
            "times the best",
            "wrong",
        ),
        tuple(told),
        bad=tuple(at for at, row in enumerate(ordered) if row.wrong not in ("", "0", "N/A")),
    )


def _words(contests: Sequence[Contest]) -> Words:
    lines: list[tuple[Any, str]] = []
    for contest in contests:
        wrong = [row for row in contest.rows if row.wrong not in ("", "0", "N/A")]
        checked = any(row.wrong not in ("", "N/A") for row in contest.rows)
        if wrong:
            first = wrong[0]
            lines.append(
                (
                    "bad",
                    f"{counted(len(wrong), 'row')} had wrong results: {first.contender}, {size_name(first.size)}",
                )
            )
        elif checked:
            lines.append(("good", "All results were checked and right."))
        else:
            lines.append(("plain", "The file does not say whether results were checked."))
        lines += [("plain", f"{name}: {value}") for name, value in contest.facts]
        lines += [("plain", note) for note in contest.notes]
    return Words("machine and run", tuple(dict.fromkeys(lines)))


# ---- readers -------------------------------------------------------------------------------------------------------


def _read(file: str) -> Contest:
    text = read_text(file)
    if text.lstrip().startswith("{"):
        contest = _json(parse_json(text, file, "bench record"), file)
    elif text.startswith(CSV_HEAD):
        contest = _csv(text, file)
    elif OSU_HEAD.search(text):
        contest = _osu(text)
    else:
        contest = _nccl_tests(text)
    if not contest.rows:
        raise UserError(f"{file}: it is a bench's output, but no row of results is in it")
    return contest


def is_record(data: object) -> bool:
    """Whether a JSON value is a bench record of ours or of nccl-tests."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("results"), list)
        and ("collective" in data or "nccl_version" in data)
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _json(data: Any, file: str) -> Contest:
    rows: list[Row] = []
    for number, result in enumerate(data["results"]):
        if not isinstance(result, dict) or _number(result.get("size")) is None:
            raise UserError(f"{file}: results[{number}] has no size; is it a bench record?")
        contenders = [(str(result.get("experiment_name") or "this library"), result)]
        contenders += [(str(peer.get("name")), peer) for peer in result.get("peers", ()) if isinstance(peer, dict)]
        for name, forms in contenders:
            for key, form in (("out_of_place", "out-of-place"), ("in_place", "in-place")):
                if isinstance(forms.get(key), dict):
                    rows += _json_row(name, form, int(result["size"]), forms[key])
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    devices = config.get("devices") or ()
    facts = [
        (name, str(data[key]))
        for name, key in (("version", "nccl_version"), ("measured", "start_time"))
        if data.get(key)
    ]
    facts += [
        (name, str(config[key]))
        for name, key in (("iterations", "iterations"), ("warm-up", "warmup_iters"))
        if key in config
    ]
    hosts = {
        str(one.get("hostname") or one.get("host"))
        for one in devices
        if isinstance(one, dict) and (one.get("hostname") or one.get("host"))
    }
    facts += [("ranks", str(len(devices)))] if devices else []
    facts += [("hosts", ", ".join(sorted(hosts)))] if hosts else []
    kinds = {
        str(one.get("device") or one.get("name") or one.get("model")) for one in devices if isinstance(one, dict)
    } - {"None"}
    facts += [("devices", ", ".join(sorted(kinds)[:3]))] if kinds else []
    notes = tuple(str(note) for note in data.get("notes", ()) if note)
    return Contest(str(data.get("collective", "collective")), tuple(rows), tuple(facts), notes, len(devices))


def _json_row(name: str, form: str, size: int, told: Mapping[str, Any]) -> Iterator[Row]:
    mean = _number(told.get("time"))
    if not mean:
        return
    parts = {key: _number(told.get(f"{key}_us")) for key in ("least", "p50", "p99", "most")}
    yield Row(
        name,
        form,
        size,
        mean * 1e-6,
        **{key: None if value is None else value * 1e-6 for key, value in parts.items()},
        algbw=None if (found := _number(told.get("alg_bw"))) is None else found * 1e9,
        busbw=None if (found := _number(told.get("bus_bw"))) is None else found * 1e9,
        wrong=str(told.get("nwrong", "")),
    )


def _csv(text: str, file: str) -> Contest:
    rows, kinds, ranks = [], set(), 0
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        try:
            micro = {
                key: float(row[f"{column}_us"]) * 1e-6
                for key, column in (("mean", "time"), ("p50", "p50"), ("p99", "p99"), ("least", "min"), ("most", "max"))
            }
            bands = {key: float(row[f"{key}_gbs"]) * 1e9 for key in ("algbw", "busbw")}
            rows.append(Row(row["contender"], row["form"], int(row["size"]), **micro, **bands, wrong=row["wrong"]))
            ranks = int(row["ranks"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{file}:{number}: this row is none of `syntony bench --csv`") from None
        kinds.add(row["collective"])
    return Contest(" and ".join(sorted(kinds)), tuple(rows), (("ranks", str(ranks)),) if ranks else (), ranks=ranks)


def _nccl_tests(text: str) -> Contest:
    """Rows of 13 columns: size count type redop root, then time algbw busbw #wrong out of place and in place."""
    rows: list[Row] = []
    facts: list[tuple[str, str]] = []
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.MULTILINE))
    kind = re.search(
        r"Collective test concluded: (\w+)|^# (\w+)_perf|/(\w+)_perf",
        text,
        re.MULTILINE,
    )
    device = re.search(r"^#\s+Rank\s+0\b.*?\[\S+\]\s+(.+)$", text, re.MULTILINE)
    host = sorted(set(re.findall(r"^#\s+Rank\s+\d+.*?\bon\s+(\S+)", text, re.MULTILINE)))
    average = re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)", text)
    version = re.search(r"nccl-tests version (\S+)", text)
    for name, value in (
        ("ranks", str(ranks or "")),
        ("hosts", ", ".join(host)),
        ("devices", device[1].strip() if device else ""),
        ("average busbw", f"{average[1]} GB/s" if average else ""),
        ("nccl-tests", version[1] if version else ""),
    ):
        if value:
            facts.append((name, value))
    for line in text.splitlines():
        word = line.split()
        if len(word) < 9 or not word[0].isdigit() or not word[1].isdigit():
            continue
        for form, first in (("out-of-place", 5), ("in-place", 9)):
            part = word[first : first + 4]
            try:
                mean, algbw, busbw = (float(one) for one in part[:3])
            except ValueError:
                continue
            if mean > 0:
                wrong = part[3] if len(part) > 3 else ""
                rows.append(
                    Row(
                        "nccl-tests", form, int(word[0]), mean * 1e-6, algbw=algbw * 1e9, busbw=busbw * 1e9, wrong=wrong
                    )
                )
    name = next(filter(None, kind.groups()), "collective") if kind else "collective"
    name = {"alltoall": "all_to_all"}.get(name, name.removesuffix("_perf"))
    return Contest(name, tuple(rows), tuple(facts), ranks=ranks)


def _osu(text: str) -> Contest:
    """`# OSU MPI Allreduce Latency Test v7.5`, a header with names of columns and units, rows of numbers."""
    title = re.search(r"^# (OSU .*)$", text, re.MULTILINE)
    head = re.search(r"^# Size\s+(.*)$", text, re.MULTILINE)
    columns = re.split(r"\s{2,}", head[1].strip()) if head else ["Latency (us)"]
    rows = []
    for line in text.splitlines():
        word = line.split()
        if line.startswith("#") or not word or not word[0].isdigit():
            continue
        try:
            values = dict(zip(columns, map(float, word[1:]), strict=False))
        except ValueError:
            continue
        size = int(word[0])
        latency = next(
            (value * 1e-6 for key, value in values.items() if "atency" in key and not re.search("Min|Max|P\\d", key)),
            None,
        )
        band = next((value * 1e6 for key, value in values.items() if "andwidth" in key or "MB/s" in key), None)
        if latency is None and band:
            latency = size / band
        if latency:
            least, most = (
                next((value * 1e-6 for key, value in values.items() if word in key), None) for word in ("Min", "Max")
            )
            rows.append(
                Row(
                    "OSU",
                    "out-of-place",
                    size,
                    latency,
                    least=least,
                    most=most,
                    algbw=band or (size / latency if size else None),
                )
            )
    name = title[1] if title else "OSU"
    found = re.search(r"MPI\S*\s+(?:Non-blocking\s+)?(\w+)", name)
    return Contest(found[1].lower() if found else "OSU", tuple(rows), (("test", name),))

"""The portfolio file, version 1: which schedule file serves which sizes. FORMAT.md describes it.

The schedules are in separate files beside it, named after it. It stores the hash of each, so that none is confused.
"""

from __future__ import annotations

import json
from pathlib import Path

from syntony.base.command import UserError
from syntony.base.files.fields import Fields, FileError
from syntony.base.files.whole_file import write_bytes
from syntony.synth.engines.portfolio import Entry, Portfolio
from syntony.synth.formats import schedule_file
from syntony.synth.formats.schedule_file import content_hash

FORMAT = "syntony-portfolio"
VERSION = 1


def write(portfolio: Portfolio, path: Path) -> list[Path]:
    """Writes proven schedules, then the portfolio file; returns the paths, the portfolio's first.

    Raises FileError; then no new files exist.
    """
    first = portfolio.entries[0].schedule
    entries, paths = [], [path]
    for number, entry in enumerate(portfolio.entries):
        place = path.with_name(f"{path.stem}.{number}{path.suffix}")
        digest = content_hash(entry.schedule)
        entries.append({"last": entry.last, "file": place.name, "hash": digest, "engine": entry.schedule.engine})
        paths.append(place)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "topology": first.topology.name,
        "collective": first.collective.kind,
        "entries": entries,
    }
    made = [place for place in paths if not place.exists()]
    try:
        for entry, place in zip(portfolio.entries, paths[1:], strict=True):
            schedule_file.write(entry.schedule, place)
        write_bytes(path, (json.dumps(document, indent=1) + "\n").encode())
    except BaseException:
        for place in made:
            place.unlink(missing_ok=True)
        raise
    return paths


def from_dict(data: object, where: str, folder: Path) -> Portfolio:
    """The portfolio in a parsed file; its schedules are in `folder`. Raises FileError."""
    fields = Fields(data, where)
    if fields.take("format") != FORMAT:
        raise fields.wrong("format", f'it must be "{FORMAT}"')
    if fields.take("version") != VERSION:
        raise fields.wrong("version", f"this program reads version {VERSION}")
    topology, collective = fields.string("topology"), fields.string("collective")
    entries = []
    for number, row in enumerate(fields.rows("entries")):
        entry = Fields(row, where, f"entries[{number}]")
        last = entry.take("last")
        if last is not None and (type(last) is not int or last < 0):
            raise entry.wrong("last", "it must be the last size in bytes, or null: no end")
        name, digest, engine = entry.string("file"), entry.string("hash"), entry.string("engine")
        entry.finish()
        if Path(name).name != name:
            raise entry.wrong("file", "it must be the name of a file in the same folder")
        schedule = schedule_file.read(folder / name)
        if content_hash(schedule) != digest:
            raise entry.wrong("hash", f"{name} is another schedule, with hash {content_hash(schedule)}")
        if schedule.engine != engine:
            raise entry.wrong("engine", f"{name} is by engine {schedule.engine}")
        entries.append(Entry(schedule, last))
    fields.finish()
    try:
        portfolio = Portfolio(tuple(entries))
    except UserError as error:
        raise FileError(f"{where}: {error}") from None
    first = portfolio.entries[0].schedule
    if (first.topology.name, first.collective.kind) != (topology, collective):
        raise FileError(
            f"{where}: it is said to be for {collective} on {topology}; "
            f"its schedules are for {first.collective.kind} on {first.topology.name}"
        )
    return portfolio

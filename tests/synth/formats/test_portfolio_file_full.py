"""A portfolio on a disk that fills while its schedules are written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from syntony.base.files.strict_json import FileError
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.engines.portfolio import Entry, Portfolio
from syntony.synth.formats import portfolio_file, schedule_file
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies import parse


@pytest.mark.parametrize("fits", [0, 1, 2])
def test_nothing_is_left_of_what_did_not_fit(fits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = greedy(parse("ring:4"), Collective.make("all_gather", 4), 1024, Budget(5.0))
    write, written = schedule_file.write, 0

    def limited(one: Schedule, path: Path) -> None:
        nonlocal written
        if written == fits:
            raise FileError(f"{path}: cannot be written: {os.strerror(errno.ENOSPC)}")
        written += 1
        write(one, path)

    old = tmp_path / "p.0.json"
    old.write_text("old")
    monkeypatch.setattr(schedule_file, "write", limited)
    found = Portfolio((Entry(schedule, 1024), Entry(schedule, 4096), Entry(schedule, None)))
    with pytest.raises(FileError, match="No space left on device"):
        portfolio_file.write(found, tmp_path / "p.json")
    assert [path.name for path in tmp_path.iterdir()] == ["p.0.json"]

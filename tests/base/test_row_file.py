"""Files that grow row by row, on a disk that fills while they do."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.base.files import row_file
from syntony.base.files.row_file import RowFile, RowsInJson
from syntony.base.files.strict_json import FileError


@pytest.fixture(params=("a limit", "a disk"))
def room(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with room for 64 KiB: writing that stops in the middle of a row, and where it can be mounted, a disk."""
    if request.param == "a disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
        if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            pytest.skip("mounting a small disk needs root")
        try:
            yield tmp_path
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)
        return
    plain = os.write

    def limited(file: int, content: bytes) -> int:
        left = (64 << 10) - os.lseek(file, 0, os.SEEK_CUR)
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(file, content[:left])

    monkeypatch.setattr(row_file.os, "write", limited)
    yield tmp_path


def test_rows_that_fit_are_kept_whole(room: Path) -> None:
    path = room / "rows.csv"
    rows = RowFile(path, "head\n")
    written = 0

    def fill() -> None:
        nonlocal written
        while True:
            rows.add(f"{written},{'x' * 1000}\n")
            written += 1

    with pytest.raises(
        FileError, match=r"rows.csv: cannot be written: No space left on device; it holds the rows before"
    ):
        fill()
    rows.close()
    lines = path.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["head", *map(str, range(written))]
    assert path.read_text().endswith("x\n")
    assert written > 50


def test_the_object_stays_whole(room: Path) -> None:
    path, seen = room / "rows.json", 0
    rows = RowsInJson(path, "results", lambda: {"count": seen, "more": "y" * 500})

    def fill() -> None:
        nonlocal seen
        while True:
            rows.add({"row": seen + 1, "text": "x" * 1000})
            seen += 1

    with pytest.raises(FileError, match="No space left on device"):
        fill()
    rows.close()
    kept = json.loads(path.read_text())
    assert len(kept["results"]) == seen > 50
    assert kept["count"] == seen - 1  # as it was when the last row was added

"""Files that grow row by row, readable after every row: whoever stops the work keeps what there was.

    RowFile       head row row ..                  CSV
    RowsInJson    {.., "rows": [row, row, ..], tail}   the tail is written again behind each new row

The first row makes the file; without a row there is none. Of a row for which the disk has no room nothing is left.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syntony.base.files.strict_json import FileError
from syntony.base.files.whole_file import is_special


class RowFile:
    """A text file of rows. Every method raises FileError where the file cannot be written."""

    def __init__(self, path: Path, head: str = "") -> None:
        self.path = path
        self._head = head
        self._file: io.FileIO | None = None
        self._end = 0  # of the rows, where a tail begins
        self._tail = b""

    def add(self, row: str, tail: str = "") -> None:
        """Writes the row in the place of the last tail, then the new one."""
        special = is_special(self.path)
        try:
            if self._file is None:
                self._file = self.path.open("wb", buffering=0)
                row = self._head + row
            if tail and not special:
                self._file.seek(self._end)
            written = row.encode()
            _write(self._file, written + tail.encode())
            self._end += len(written)
            self._tail = tail.encode()
            if tail and not special:
                self._file.truncate()
        except OSError as error:
            if self._file is not None and not special:
                self._restore(self._file)
            raise FileError(f"{self.path}: cannot be written: {error.strerror}; it holds the rows before") from None

    def _restore(self, file: io.FileIO) -> None:
        """What was there before the row that did not fit; the place for it has been there, too."""
        with contextlib.suppress(OSError):
            file.seek(self._end)
            _write(file, self._tail)
            file.truncate()

    def close(self) -> None:
        """No more rows come."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RowsInJson:
    """A JSON object of which one list grows. `rest` gives its other fields as they are now; they stand behind it."""

    def __init__(self, path: Path, key: str, rest: Callable[[], Mapping[str, Any]]) -> None:
        self._rows = RowFile(path, f"{{{json.dumps(key)}: [\n")
        self._rest = rest
        self._separator = ""

    def add(self, row: object) -> None:
        """Raises FileError."""
        fields = "".join(f",\n{json.dumps(key)}: {json.dumps(value)}" for key, value in self._rest().items())
        self._rows.add(self._separator + json.dumps(row), f"\n]{fields}\n}}\n")
        self._separator = ",\n"

    def close(self) -> None:
        """No more rows come."""
        self._rows.close()


def _write(file: io.FileIO, content: bytes) -> None:
    while content:
        content = content[os.write(file.fileno(), content) :]

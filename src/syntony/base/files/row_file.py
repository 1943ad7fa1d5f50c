"""Files that grow row by row and are readable after every row: an interrupted command keeps its results.

    RowFile       head row row ..                  CSV
    RowsInJson    {.., "rows": [row, row, ..], tail}   the tail is rewritten behind each new row

The first row creates the file; without rows there is no file. A row that does not fit on the disk leaves no trace.
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
    """A text file of rows. Every method raises FileError if the file cannot be written."""

    def __init__(self, path: Path, head: str = "") -> None:
        self.path = path
        self._head = head
        self._file: io.FileIO | None = None
        self._end = 0  # end of the rows, where a tail begins
        self._tail = b""

    def add(self, row: str, tail: str = "") -> None:
        """Replaces the last tail by the row and the new tail."""
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
        """Restores the contents before the row that did not fit, for which there was room before."""
        with contextlib.suppress(OSError):
            file.seek(self._end)
            _write(file, self._tail)
            file.truncate()

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RowsInJson:
    """A JSON object in which one list grows. `rest` returns its other fields as of now; they follow the list."""

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
        """Ends the file."""
        self._rows.close()


def _write(file: io.FileIO, content: bytes) -> None:
    while content:
        content = content[os.write(file.fileno(), content) :]

"""Chrome traces, for chrome://tracing and Perfetto: rows of boxes in processes, arrows between boxes, and curves.

The methods take seconds; the file has microseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syntony.base.files.whole_file import write_text


class ChromeTrace:
    """Collects events; `write` writes them to a file. The caller chooses the numbers `process` and `row`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def name_process(self, process: int, name: str) -> None:
        """Its title; processes are ordered by their numbers."""
        self._meta("process_name", process, name=name)
        self._meta("process_sort_index", process, sort_index=process)

    def name_row(self, process: int, row: int, name: str) -> None:
        """The title of a row of a process."""
        self._meta("thread_name", process, row, name=name)

    def box(
        self, process: int, row: int, name: str, begin: float, end: float, category: str = "", /, **arguments: Any
    ) -> None:
        """A box with a duration; the arguments are shown when it is selected."""
        self._add("X", process, row, begin, name=name, dur=(end - begin) * 1e6, cat=category, args=arguments)

    def arrow(self, process: int, name: str, key: str, start: tuple[int, float], end: tuple[int, float]) -> None:
        """From a row at a time to another; each arrow needs a unique key."""
        self._add("s", process, *start, name=name, cat=name, id=key)
        self._add("f", process, *end, name=name, cat=name, id=key, bp="e")

    def point(self, process: int, curve: str, moment: float, **values: float) -> None:
        """Sets the values of a curve from this moment to its next point."""
        self._add("C", process, None, moment, name=curve, args=values)

    def write(self, path: str | Path) -> None:
        """Raises `FileError` if the file cannot be written; then no new file exists."""
        write_text(path, json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}))

    def _meta(self, kind: str, process: int, row: int | None = None, **arguments: object) -> None:
        self._add("M", process, row, None, name=kind, args=arguments)

    def _add(self, phase: str, process: int, row: int | None, moment: float | None, **rest: object) -> None:
        where = {"ph": phase, "pid": process, "tid": row, "ts": None if moment is None else moment * 1e6}
        self.events.append({key: value for key, value in (where | rest).items() if value not in (None, "", {})})

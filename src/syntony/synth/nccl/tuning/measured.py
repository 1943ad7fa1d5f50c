"""Times measured by nccl-tests: its text table, or its JSON, which `syntony bench` also writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syntony.base.command import UserError

_MICRO = 1e-6


def read_times(path: Path) -> list[tuple[int, float]]:
    """Bytes and seconds of each row, out of place. Raises UserError that names file and line.

    Rows with wrong results are rejected, because their times mean nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found = _of_json(text, path) if text.lstrip().startswith("{") else _of_table(text, path)
    if not found:
        raise UserError(f"{path}: it has no row of nccl-tests: size, count, type, .., time, algbw, busbw, #wrong")
    return found


def _of_table(text: str, path: Path) -> list[tuple[int, float]]:
    """Rows like `1048576  262144  float  sum  -1  35.2  29.8  52.1  0  34.9  30.0  52.6  0`; the rest is remarks."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if line.lstrip().startswith("#") or len(words) < 9 or not words[0].isdecimal() or not words[1].isdecimal():
            continue
        try:
            time, wrong = float(words[5]), words[8]
        except ValueError:
            raise UserError(f"{path}:{number}: '{words[5]}' is not a time in microseconds") from None
        if wrong not in ("0", "N/A"):
            raise UserError(f"{path}:{number}: {wrong} results of {words[0]} bytes were wrong")
        found.append((int(words[0]), time * _MICRO))
    return found


def _of_json(text: str, path: Path) -> list[tuple[int, float]]:
    try:
        data: Any = json.loads(text)
        rows = [(int(row["size"]), row["out_of_place"]) for row in data["results"]]
        wrong = next((size for size, form in rows if int(form.get("nwrong") or 0) > 0), None)
        if wrong is not None:
            raise UserError(f"{path}: results of {wrong} bytes were wrong")
        return [(size, float(form["time"]) * _MICRO) for size, form in rows]
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: it is not nccl-tests' JSON: {type(error).__name__}: {error}") from None

"""Tables: rows that are printed as they are made, each saying which goal it missed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """Cells in the order of the part's columns.

    missed  the goal it fell short of, in a few words; empty: none
    remark  what is printed behind the cells
    """

    cells: tuple[object, ...]
    missed: str = ""
    remark: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Part:
    """Rows of one form.

    columns  heading and width of each; a negative width flushes left
    rows     makes them, one after another
    closing  lines to print behind them, from all of them
    """

    title: str
    columns: tuple[tuple[str, int], ...]
    rows: Callable[[], Iterator[Row]]
    closing: Callable[[Sequence[Any]], list[str]] = lambda rows: []


@dataclass(frozen=True)
class Table:
    """One table of the registry in __main__.py.

    parts      what is measured, from the options; raises UserError where it cannot be
    configure  adds the table's options
    document   for option --json: the same as one JSON document, and whether every goal was reached
    """

    name: str
    summary: str
    parts: Callable[[argparse.Namespace], Iterable[Part]]
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    document: Callable[[argparse.Namespace], tuple[Any, bool]] | None = None


def show(parts: Iterable[Part]) -> bool:
    """Prints the parts as their rows come; whether every row reached its goal."""
    good = True
    for part in parts:
        print(f"\n{part.title}\n")
        print(_line([heading for heading, _ in part.columns], part), flush=True)
        rows = []
        for row in part.rows():
            rows.append(row)
            missed = f"  MISSED: {row.missed}" if row.missed else ""
            remark = f"  {row.remark}" if row.remark else ""
            print(_line(row.cells, part) + missed + remark, flush=True)
        for line in part.closing(rows):
            print(line)
        good = good and not any(row.missed for row in rows)
    return good


def _line(cells: Sequence[object], part: Part) -> str:
    columns = zip(cells, part.columns, strict=True)
    text = (f"{cell!s:<{-width}}" if width < 0 else f"{cell!s:>{width}}" for cell, (_, width) in columns)
    return "  ".join(text).rstrip()

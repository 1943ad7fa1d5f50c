"""The runtime's tables: goals are told beside figures, and what cannot be measured is a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from benchmarks.goals import Part, Row
from benchmarks.runtime import __main__ as front
from benchmarks.runtime.table import Table
from topologies.command import UserError


def _table(name: str, *missed: str) -> Table:
    def rows() -> Iterator[Row]:
        yield from (Row((word or "reached",), word) for word in missed)

    return Table(name, "a stand-in", lambda options: (Part("Title", (("cell", 8),), rows),))


def _impossible(options: argparse.Namespace) -> tuple[Part, ...]:
    raise UserError("there is no peer")


TABLES = (_table("good", "", ""), _table("short", "", "too slow"), Table("none", "a stand-in", _impossible))


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("short", 1), ("none", 2)])
def test_exit_codes(name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(front, "TABLES", TABLES)
    assert front.main([name]) == code
    out, err = capsys.readouterr()
    assert ("MISSED: too slow" in out) == (code == 1)
    assert err == ("benchmarks.runtime none: there is no peer\n" if code == 2 else "")


def test_help_names_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        front.main(["--help"])
    out = capsys.readouterr().out
    assert all(table.name in out and table.summary.split(";")[0] in " ".join(out.split()) for table in front.TABLES)

"""Table `contest`: what was measured is kept and not measured again; who is beaten is said."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.benchmarks.synthesis.irregular import contest
from syntony.benchmarks.synthesis.irregular.contest import Case, Result, every_case, kept, measured
from syntony.benchmarks.tables import Part, show

CASE = Case("0", "broadcast", 1 << 20)


def test_there_are_thirty_networks() -> None:
    cases = every_case()
    assert len({case.network for case in cases}) == 30
    assert len(cases) == len(set(cases)) == 30 * 8 * 4


def test_a_case_is_measured() -> None:
    """A tree of two ranks: at the bound, so that no engine need be asked."""
    result = measured(Case("6", "gather", 1 << 30), 5.0)
    assert result.bound <= result.seconds <= 1.01 * result.bound
    assert not result.rival


def test_results_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.jsonl"
    asked: list[Case] = []

    def measure(case: Case, budget: float) -> Result:
        asked.append(case)
        return Result(case, "forest", 1.2, 1.0, "teccl", 1.0 + len(asked) / 10)

    cases = [CASE, replace(CASE, size=1 << 30)]
    part = Part(
        "", tuple((str(n), 5) for n in range(8)), lambda: contest._rows(cases, 1.0, path, measure), contest._closing
    )
    assert not show([part])  # 1.2 is more than 1.1; in the second case the engine alone takes as long
    assert "1.091 times as long" in capsys.readouterr().out
    assert asked == cases
    assert list(kept(path)) == cases
    assert not show([part])
    assert asked == cases
    assert "2 cases, 1 beaten by more than 1 %" in capsys.readouterr().out


def test_slices_are_the_whole() -> None:
    parser = argparse.ArgumentParser()
    contest._configure(parser)

    def chosen(*words: str) -> list[Case]:
        (part,) = contest._parts(parser.parse_args(words))
        assert isinstance(part.rows, partial)
        cases: list[Case] = part.rows.args[0]
        return cases

    assert chosen("--cases", "1-400") + chosen("--cases", "401-960") == chosen()
    torus = chosen("--network", "torus")
    assert {case.network for case in torus} == {"torus"}
    assert chosen("--network", "torus", "--cases", "3") == torus[2:3]
    with pytest.raises(SystemExit):
        parser.parse_args(["--cases", "5-4"])


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({"seconds": 1}) + "\n")
    with pytest.raises(UserError, match=r"other.jsonl:1: no result of this table"):
        kept(path)

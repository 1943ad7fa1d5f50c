"""docs/overlap.md: every command is run and says what the page shows, its numbers apart; mistakes get a sentence."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from syntony.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "overlap.md"
TEXT = PAGE.read_text()
SHOWN = re.findall(r"^\$ syntony (.+)\n((?:(?!\$ |```).*\n)*)", TEXT, re.MULTILINE)
THIN = ["--model", "thin", "--layout", "dp=4"]


def _words(text: str) -> set[str]:
    """The words that begin the lines: what is told, without how much, and in which order."""
    return {" ".join(re.findall(r"[a-z]{3,}", line)[:2]) for line in text.splitlines()} - {""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("docs")


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In one test: later commands read what earlier ones wrote, and tests may run on several workers."""
    monkeypatch.chdir(folder)
    for command, output in SHOWN:
        assert main(shlex.split(command)) == 0, command
        told = _words(capsys.readouterr().out)
        assert len(told & _words(output)) >= 0.5 * len(_words(output)), (command, told)
        for name in re.findall(r"-o (\S+)", command):
            assert (folder / name).stat().st_size > 1000, command


def test_python_examples() -> None:
    for example in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        exec(compile(example, str(PAGE), "exec"), {})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["simulate"], "say what to plan"),
        (["simulate", "--model", "thin", "--layout", "pd=4"], "no key 'pd'"),
        (["simulate", "--model", "thin", "--layout", "dp=four"], "whole number"),
        (["simulate", *THIN, "--policy", "dpp"], "did you mean ddp"),
        (["simulate", *THIN, "--machine", "cray"], "no machine 'cray'"),
        (["simulate", *THIN, "--machine", "cpu:network=fast"], "positive number"),
        (["simulate", *THIN, "--on", "full:2"], "has 4 ranks, but"),
        (["explain", "nothing.json"], "nothing.json"),
        (["trace", *THIN, "-o", "trace.txt"], "must end in .json"),
        (["plan", *THIN, "-o", "no/where.json"], "there is no folder"),
        (["search", *THIN, "--method", "luck"], "no method 'luck'"),
        (["traffic", *THIN, "--algorithm", "all_reduce=fast"], "no algorithm 'fast'"),
        (["compare", *THIN, "--policies", "domino"], "nothing moves on tp"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", *arguments]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.splitlines()) == 1


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def said(*arguments: str) -> dict[str, object]:
        assert main(["overlap", *arguments, "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    assert {"command", "policies", "apart", "models", "pipelines", "machines"} == said("list").keys()
    plan = said("plan", *THIN, "-o", str(tmp_path / "plan.json"))
    assert {"policy", "hash", "seconds"} <= plan.keys()
    alike = said("simulate", str(tmp_path / "plan.json"))
    assert alike["seconds"] == pytest.approx(plan["seconds"], rel=1e-9)
    assert {"step", "estimate", "groups", "ops", "changes"} <= said("explain", *THIN, "--policy", "ddp").keys()
    rows = said("compare", *THIN, "--policies", "fifo,bytescheduler:slice=1M,credit=4M")["policies"]
    assert isinstance(rows, list)
    assert {row["policy"] for row in rows} == {"fifo", "bytescheduler:slice=1M,credit=4M"}
    matrix = said("traffic", *THIN, "--algorithm", "all_reduce=ring")["matrix"]
    assert isinstance(matrix, list)
    assert len(matrix) == 4

"""`syntony compare`: the figures of `simulate`, side by side; who does not fit is refused, who cannot run left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def _a_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "ring:4", "all_gather", "--engine", "greedy", "-o", "s.json"]) == 0
    capsys.readouterr()


@pytest.mark.usefixtures("_a_schedule")
def test_figures_are_those_of_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "compare", "s.json", "ring", "engine:greedy", "--sizes", "1M,1K", "-o", "c.png")
    assert (found["topology"], found["collective"], found["ranks"]) == ("ring:4", "all_gather", 4)
    assert [row["name"] for row in found["compared"]] == ["s.json", "ring", "engine:greedy"]
    alone = {
        "s.json": answer(capsys, "simulate", "s.json", "--size", "1M"),
        "ring": answer(capsys, "simulate", "builder:ring:all_gather", "--topology", "ring:4", "--size", "1M"),
    }
    for row in found["compared"][:2]:
        assert [one["size"] for one in row["simulated"]] == [1024, 1 << 20]
        assert row["simulated"][1]["seconds"] == alone[row["name"]]["seconds"]
        assert row["simulated"][1]["fraction"] == alone[row["name"]]["fraction"]
    assert found["bounds"][1]["seconds"] == alone["ring"]["bound_seconds"]
    assert found["compared"][0]["steps"] == 2
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_a_schedule")
def test_the_table_marks_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ring", "direct", "s.json", "--sizes", "8,64M"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count("*") for line in lines[:-1]) >= 2
    assert all(len(line) <= 80 for line in lines if "left out" not in line)


def test_who_cannot_run_there_is_left_out_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "compare", "ring", "engine:greedy", "--on", "mesh:2x3", "--collective", "all_reduce")
    assert [row["name"] for row in found["compared"]] == ["engine:greedy"]
    assert "every path between them passes through other ranks" in found["refused"]["ring"]


@pytest.mark.usefixtures("_a_schedule")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare ring", "on which network?"),
        ("compare ring --on ring:4", "which collective?"),
        ("compare rign --on ring:4 --collective all_gather", "did you mean ring?"),
        ("compare two_shot --on ring:4 --collective gather", "two_shot does no gather"),
        ("compare s.json --on ring:5", "it is made for ring:4, and the others run on ring:5"),
        ("compare s.json ring --collective all_reduce", "it is all_gather on 4 ranks, and all_reduce on 4 is compared"),
        ("compare ring s.json --sizes 8,x", "--sizes: 'x' is not a size"),
        ("compare engine:forrest s.json", "did you mean forest?"),
    ],
)
def test_mistakes_are_one_sentence(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1

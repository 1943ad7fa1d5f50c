"""docs/tutorials/own_topology.md, command by command, as somebody reads it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from syntony.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "own_topology.md").read_text()
COMMANDS = re.findall(r"^\$ syntony (.*)$", PAGE, re.MULTILINE)
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_it_takes_fifteen_commands() -> None:
    assert len(COMMANDS) <= 15


def test_the_algorithm_is_refused_then_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (words,) = {command for command in COMMANDS if command.startswith("compile")}
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    assert main(shlex.split(words)) == 2
    told = re.sub(r"\S* of rank \d+ and \S* of rank \d+", "..", capsys.readouterr().err)
    assert told == f"syntony: {' '.join(re.findall(r'`(mine.py:9:[^`]*)`', PAGE)[0].split())}\n"
    script.write_text(SCRIPT.replace("(chunk + hop + 1)", "(chunk + hop)"))
    assert main(shlex.split(words)) == 0, capsys.readouterr().err
    assert main(["verify", "mine.json"]) == 0


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_every_other_command_works_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "tests" / "data" / "leaf_spine.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if not command.startswith("compile"):
            assert main(shlex.split(command)) == 0, f"{command}: {capsys.readouterr().err}"
    for name in ("large.xml", "small.plan.json"):
        assert main(["verify", name]) == 0
    assert (tmp_path / "large.pdf").read_bytes().startswith(b"%PDF")

"""`syntony compile`: what it prints and writes, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.__main__ import main

SCRIPT = """from syntony import algorithm

@algorithm("all_gather", ranks=3)
def star(a):
    for source in range(a.ranks):
        for rank in range(a.ranks):
            a.input(source).copy(to=rank)

@algorithm("broadcast", ranks=2)
def broken(a):
    a.input(0).copy(
        to=2)

@algorithm("broadcast", ranks=2)
def divided(a):
    1 / 0
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT)
    return path


def test_compile_writes_a_proven_program(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "star.json"
    assert main(["compile", f"{script}:star", "--ranks", "4", "-o", str(output)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("star all_gather on 4 ranks: 28 instructions, 28 lanes, 0 scratch slots\n")
    assert "proven  terminates at FIFO depth 1, without races" in told
    assert main(["verify", str(output)]) == 0
    assert main(["simulate", str(output), "--topology", "full:4", "--size", "1M"]) == 0


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("mine.py:broken", "mine.py:11: there is no rank 2; ranks are 0..1"),
        ("mine.py:divided", "mine.py:16: ZeroDivisionError: division by zero"),
        ("mine.py:absent", "there is no algorithm 'absent' in it; it has star, broken, divided"),
        ("mine.py", "mine.py:NAME; it has star, broken, divided"),
        ("other.py", "other.py: there is no script"),
    ],
)
def test_refusals(script: Path, place: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = script.parent / "out.json"
    assert main(["compile", str(script.parent / place), "-o", str(output)]) == 2
    assert told in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [("def (", ":1: invalid syntax"), ("x = 1\nimport absent_module\n", ":2: ModuleNotFoundError")],
)
def test_scripts_that_do_not_run(text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    assert main(["compile", str(path)]) == 2
    assert f"bad.py{told}" in capsys.readouterr().err

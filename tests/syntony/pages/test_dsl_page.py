"""docs/dsl.md against the language: every argument and verb, none more, none less; its example is proven."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.synth.dsl import Algorithm, Chunk, Recording, algorithm

PAGE = (Path(__file__).parents[3] / "docs" / "dsl.md").read_text()


def section(title: str) -> str:
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[
        [part.partition("\n")[0].strip("`") for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)].index(title)
    ]


def parameters(function: object) -> list[str]:
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name not in ("self", "others")]


def test_the_decorator() -> None:
    table = section("@algorithm(kind, ranks, ...)")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == parameters(algorithm)
    methods = re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", table, re.MULTILINE)
    for name, written in methods:
        assert written.split(", ") == parameters(getattr(Algorithm, name))
    public = {name for name, value in vars(Algorithm).items() if inspect.isfunction(value) and name[0] != "_"}
    assert {name for name, _ in methods} == public


def test_the_recording() -> None:
    table = section("The argument of the function")
    for name, written in re.findall(r"`a\.(\w+)\(([^)]*)\)`", table):
        expected = parameters(getattr(Recording, name))
        assert written.split(", ") == expected, name
    assert {"input", "output", "scratch"} == set(re.findall(r"`a\.(\w+)\(", table))
    assert set(re.findall(r"`a\.(\w+)`", table)) == {"ranks", "root", "chunks", "instances", "instance"}


def test_the_verbs() -> None:
    table = section("Chunks")
    verbs = dict(re.findall(r"^\| `x\.(\w+)\(([^)]*)\)` \|", table, re.MULTILINE))
    public = {name for name, value in vars(Chunk).items() if inspect.isfunction(value) and name[0] != "_"}
    assert verbs.keys() == public
    for name, written in verbs.items():
        words = [word for word in written.split(", ") if word not in ("y", "z")]
        assert words == parameters(getattr(Chunk, name)), name


def test_the_example_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "ring.py"
    script.write_text(example)
    assert main(["compile", str(script), "--ranks", "6"]) == 0
    assert "6 ranks" in capsys.readouterr().out

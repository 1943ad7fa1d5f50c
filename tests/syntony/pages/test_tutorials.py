"""The tutorials of docs/: notebooks, run from the first cell to the last as Jupyter runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main

TUTORIALS = Path(__file__).parents[3] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))


def code(name: str) -> list[str]:
    cells = json.loads((TUTORIALS / f"{name}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells of a notebook after all of them ran, in the folder where they lie. Raises where one fails."""
    if find_spec("nbclient") is None or find_spec("ipykernel") is None:
        pytest.skip("nbclient and ipykernel are not installed (they are in the extra dev)")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    place = {"metadata": {"path": str(TUTORIALS)}}
    NotebookClient(notebook, timeout=250, kernel_name="python3", resources=place).execute()
    return list(notebook.cells)


def said(cells: list[Any]) -> str:
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", ()))


def frames(cells: list[Any]) -> int:
    """How many pages the cells show."""
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return sum("<iframe" in str(one.get("text/html")) for one in data)


@pytest.mark.parametrize("name", NAMES)
def test_none_keeps_what_it_printed(name: str) -> None:
    """What a tutorial prints is made when the site is: what was committed would be of another day."""
    cells = json.loads((TUTORIALS / f"{name}.ipynb").read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_command_stops_its_cell(name: str) -> None:
    """But where the text says that it fails."""
    for cell in code(name):
        if cell.startswith("%%bash"):
            assert cell.startswith(("%%bash -e\n", "%%bash --no-raise-error\n")) or cell.count("\n") == 1


def test_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = run("overlap", monkeypatch)
    assert "link busy with" in said(cells)
    assert frames(cells) == 1


@pytest.mark.sweep
def test_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    cells = run("hang", monkeypatch)
    assert "rank 1 is after all_reduce #3, all others are waiting in all_reduce #4" in said(cells)
    assert "timed out after" in said(cells)
    assert frames(cells) == 1


@pytest.mark.sweep
def test_from_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    words = said(run("from_gloo", monkeypatch))
    assert re.search(r"loss \d+\.\d+", words)
    assert "Out of bounds values : 0 OK" in words


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_own_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = run("own_topology", monkeypatch)
    assert "it would count twice" in said(cells)
    assert frames(cells) == 2


# ---- own_topology in parts, as all of it takes a minute --------------------------------------------------------------
COMMANDS = re.findall(r"^syntony (.*)$", "\n".join(code("own_topology")), re.MULTILINE)
(SCRIPT,) = (
    text.removeprefix("%%writefile mine.py\n") for text in code("own_topology") if text.startswith("%%writefile")
)


def test_own_topology_takes_fifteen_commands() -> None:
    assert 10 <= len(COMMANDS) <= 15


def test_own_topologys_algorithm_is_refused_then_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (words,) = {command for command in COMMANDS if command.startswith("compile")}
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    assert main(shlex.split(words)) == 2
    told = re.sub(r"\S* of rank \d+ and \S* of rank \d+", "..", capsys.readouterr().err)
    page = " ".join((TUTORIALS / "own_topology.ipynb").read_text().replace('\\n",', "").replace('"', "").split())
    assert told == f"syntony: {re.findall(r'`(mine.py:9:[^`]*)`', page)[0]}\n"
    script.write_text(SCRIPT.replace("(chunk + hop + 1)", "(chunk + hop)"))
    assert main(shlex.split(words)) == 0, capsys.readouterr().err
    assert main(["verify", "mine.json"]) == 0

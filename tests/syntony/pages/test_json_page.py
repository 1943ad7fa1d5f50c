"""docs/json.md against what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from syntony.__main__ import main

PAGE = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
TABLE = PAGE[PAGE.index("| command | keys") : PAGE.index("| key | what")]
KEYS = {
    row[1]: re.findall(r"`(\w+)`", row[2]) for row in re.finditer(r"^\| `([a-z ]+)` \| (`.*) \|$", TABLE, re.MULTILINE)
}
COMMANDS = {
    "topo show": "topo show ring:4",
    "bound": "bound ring:4 all_gather",
    "synth": "synth ring:4 all_gather --engine greedy -o s.json",
    "verify": "verify s.json",
    "simulate": "simulate s.json --size 1M",
    "convert": "convert s.json --to msccl-xml -o s.xml",
}


def test_every_row_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert KEYS.keys() == COMMANDS.keys()
    monkeypatch.chdir(tmp_path)
    for name, words in COMMANDS.items():
        assert main([*words.split(), "--json"]) == 0, capsys.readouterr().err
        (line,) = capsys.readouterr().out.splitlines()
        told = json.loads(line)
        assert next(iter(told)) == "command"
        assert told["command"] == name
        found = set(told) - {"command"}
        assert set(KEYS[name]) == found if name != "bound" else set(KEYS[name]) <= found, name


def test_an_error_has_the_shape_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^\{.*\}$", PAGE, re.MULTILINE)
    assert main(["bound", "nope", "all_gather", "--json"]) == 2
    told, errors = capsys.readouterr()
    assert json.loads(told).keys() == json.loads(example).keys()
    assert json.loads(told)["error"] in errors

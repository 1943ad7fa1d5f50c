"""docs/networks.md: the worked example is run as it stands, and its picture is what Syntony draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syntony import topology
from syntony.__main__ import main

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "networks.md").read_text()


def save_the_network(folder: Path) -> None:
    (network,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (folder / "two-hosts.toml").write_text(network)


def test_the_worked_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_the_network(tmp_path)
    commands = re.findall(r"^\$ syntony (.*)$", TEXT, re.MULTILINE)
    assert commands
    told = {}
    for command in commands:
        assert main(command.split()) == 0, f"{command}: {capsys.readouterr().err}"
        told[command.split()[0]] = capsys.readouterr().out
    assert "one link of 10 GB/s" in told["bound"]
    assert "no schedule moves more bytes per second" in told["synth"]
    assert (tmp_path / "two-hosts.svg").read_bytes() == (DOCS / "pictures" / "two-hosts.svg").read_bytes()


def test_the_damage_that_the_page_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_the_network(tmp_path)
    (name,) = re.findall(r"`(file:two-hosts\.toml,slowed=[^`]+)`", TEXT)
    assert min(link.bandwidth for link in topology(name).links) == 5_000_000_000


def test_the_readme_s_picture_is_what_syntony_draws(tmp_path: Path) -> None:
    assert main(["topo", "draw", "dgx1", "-o", str(tmp_path / "dgx1.svg")]) == 0
    assert (tmp_path / "dgx1.svg").read_bytes() == (DOCS / "pictures" / "dgx1.svg").read_bytes()

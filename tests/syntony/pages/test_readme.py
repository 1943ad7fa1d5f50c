"""The examples of the README and of docs/schedules.md, run as they stand; links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syntony.__main__ import main
from tests.collectives.running import torchrun

ROOT = Path(__file__).parents[3]


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_path_from_wires_to_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## From the wires") : text.index("## Where next")]
    commands = [
        re.split(r"\s{3,}", line.strip())[0] for line in section.splitlines() if line.startswith("    syntony ")
    ]
    assert [command.split()[1] for command in commands] == [
        "topo",
        "bound",
        "synth",
        "verify",
        "simulate",
        "bench",
        "view",
    ]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert main(command.split()[1:]) == 0, f"{command}: {capsys.readouterr().err}"


def test_the_algorithm_by_hand_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples("docs/schedules.md")
    script = tmp_path / "my_ring.py"
    script.write_text(example)
    assert main(["compile", str(script), "--ranks", "5"]) == 0
    assert "ring all_reduce on 5 ranks" in capsys.readouterr().out


def test_the_training_example_runs_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (example,) = examples("README.md")
    assert len(example.splitlines()) == 15
    script = tmp_path / "train.py"
    script.write_text(example)
    result = torchrun(2, script)
    assert result.returncode == 0, result.stderr
    losses = dict(re.findall(r"rank (\d): loss (\d\.\d{4})", result.stdout))
    assert sorted(losses) == ["0", "1"]

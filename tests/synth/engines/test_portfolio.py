"""Portfolios: at every size the fastest schedule, and what is written is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.base.files.fields import FileError
from syntony.synth.engines.auto import (
    run,
    seconds_at,
)
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.portfolio import EXACT, KEEP, Entry, Portfolio, portfolio
from syntony.synth.formats import portfolio_file
from syntony.synth.formats.loading import read, verify
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies.parse import parse
from tests.sampled import examples


@pytest.fixture(scope="module")
def of_a_mesh() -> Portfolio:
    return portfolio(parse("mesh:3x3"), Collective.make("all_reduce", 9), 1 << 8, 1 << 26, Budget(3))


@examples(30)
@given(power=st.integers(8, 26))
def test_no_entry_is_beaten_by_another(of_a_mesh: Portfolio, power: int) -> None:
    """At the sizes that were simulated, within the turn's tolerance."""
    best = min(seconds_at(entry.schedule, 1 << power) for entry in of_a_mesh.entries)
    assert seconds_at(of_a_mesh.at(1 << power), 1 << power) <= KEEP * best * 1.0001


def test_turns_are_where_they_cross(of_a_mesh: Portfolio) -> None:
    """A little behind its last size, a schedule is no longer good enough: its turn ended no earlier than it had to."""
    assert len(of_a_mesh.entries) > 1

    def good(schedule: Schedule, size: int) -> bool:
        return seconds_at(schedule, size) <= min(seconds_at(one.schedule, size) for one in of_a_mesh.entries)

    for entry in of_a_mesh.entries[:-1]:
        assert entry.last is not None
        reach = max(1, round(entry.last * (EXACT - 1)))
        assert not all(good(entry.schedule, entry.last + 1 + reach * part // 20) for part in range(21))


def test_a_portfolio_is_read_as_it_was_written(of_a_mesh: Portfolio, tmp_path: Path) -> None:
    paths = portfolio_file.write(of_a_mesh, tmp_path / "p.json")
    assert len(paths) == 1 + len(of_a_mesh.entries)
    content = read(paths[0]).content
    assert isinstance(content, Portfolio)
    assert content == of_a_mesh
    assert verify(paths[0])
    assert main(["simulate", str(paths[0]), "--size", "1K"]) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "version is 2; this program reads version 1"),
        ({"topology": "torus:3x3"}, "it is said to be for all_reduce on torus:3x3; its schedules are for"),
        ({"entries": []}, "a portfolio has at least one schedule"),
        ({"more": 1}, 'has the unknown key "more"'),
        ({("entries", 0, "hash"): "0"}, "p.0.json is another schedule"),
        ({("entries", 0, "file"): "../p.0.json"}, "it must be the name of a file in the same folder"),
        ({("entries", 0, "last"): None}, "sizes must ascend and its last entry have no end"),
        ({("entries", 0, "last"): "many"}, "it must be the last size in bytes, or null"),
        ({("entries", 0, "engine"): "magic"}, "p.0.json is by engine"),
    ],
)
def test_a_wrong_portfolio_is_refused(
    of_a_mesh: Portfolio, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    path = portfolio_file.write(of_a_mesh, tmp_path / "p.json")[0]
    document = json.loads(path.read_text())
    for place, value in change.items():
        if isinstance(place, tuple):
            _, number, key = place
            document["entries"][number][key] = value
        else:
            document[place] = value
    path.write_text(json.dumps(document))
    with pytest.raises(FileError, match=r"p\.json") as told:
        read(path)
    assert sentence in str(told.value)


def test_schedules_of_one_portfolio_are_alike(of_a_mesh: Portfolio) -> None:
    other: Schedule = run(parse("mesh:3x3"), Collective.make("all_gather", 9), 1 << 10, Budget(10))
    with pytest.raises(UserError, match="one collective on one network"):
        Portfolio((Entry(of_a_mesh.entries[0].schedule, 5), Entry(other, None)))


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.json"
    command = ["portfolio", "ring:3", "broadcast", "--to", "1M", "--timeout", "3", "-o", str(path), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in told["entries"]] == sorted(map(str, tmp_path.glob("ring.*.json")))
    assert verify(path)
    assert main(["portfolio", "ring:3", "broadcast", "--from", "2M", "--to", "1M"]) == 2

"""Files written before everything moved into the one package `syntony` are read as they were then.

tests/data/before_the_move holds them, written by the version of that day; so are the numbers here, as it told them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import syntony
from syntony.__main__ import main
from syntony.collectives.tuner import settings, table
from syntony.collectives.tuner.grammar import show
from syntony.overlap.step.plan import Plan
from tests.collectives.running import run_command

OLD = Path(__file__).parents[1] / "data" / "before_the_move"
SECONDS = {
    "ag.json": 8.56432e-06,
    "ag.msccl.json": 0.000198608,
    "pf.0.json": 0.00039421600000000013,
    "pf.json": 0.00039421600000000013,
    "ring.json": 0.001583864,
    "ring.mscclpp.json": 0.001057576,
    "ring.xml": 0.0010535759999999999,
    "symmetric.json": 0.0002477600000000001,
}
"""By schedule or program: of 1 MiB, simulated; programs on full:RANKS."""


@pytest.mark.parametrize("name", SECONDS)
def test_schedules_portfolios_and_programs(name: str, tmp_path: Path) -> None:
    path = OLD / name
    assert syntony.verify(path)
    ranks = {"ring.json": 4}.get(name, 2)
    topology = f"full:{ranks}" if name.startswith("ring") else None
    assert syntony.simulate(path, "1M", topology=topology).seconds == pytest.approx(SECONDS[name], rel=1e-12)
    if name == "pf.json":
        return  # `load` and `convert` take its schedules one by one
    program = syntony.load(path)
    copy = tmp_path / "copy.json"
    assert main(["convert", str(path), "--to", "json", "-o", str(copy)]) == 0
    assert syntony.verify(copy)
    assert syntony.load(copy).collective == program.collective


def test_symmetry_is_kept() -> None:
    assert '"symmetry": [{' in (OLD / "symmetric.json").read_text()


def test_a_topology() -> None:
    assert syntony.bound(f"file:{OLD / 'dgx1.json'}", "all_gather").throughput.algbw == 1.2e12 / 7


def test_a_plan_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    path = OLD / "plan.json"
    assert Plan.read(path).hash == "3d33b055458dd372dab754a8bb62d16865b6653979d717cf08b4cf78310a7013"
    assert main(["overlap", "simulate", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["policy"], told["seconds"]) == ("need", pytest.approx(0.023619136, rel=1e-12))
    assert main(["overlap", "explain", str(path)]) == 0


def test_a_table_of_the_tuner_and_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = OLD.glob("2-*.json")
    written = json.loads(old.read_text())["place"]
    place = table.Place(**{**written, "hosts": tuple(written["hosts"])})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place.path().name == old.name
    place.path().parent.mkdir(parents=True)
    place.path().write_bytes(old.read_bytes())
    found = table.load(place)
    assert found is not None
    assert f'algo = "{show(found.rules())}"\n' in (OLD / "tune.toml").read_text()
    read = settings.read({"SYNTONY_CONFIG": str(OLD / "tune.toml")})
    assert "all_reduce" in read.rules


def test_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = (
        "model.blocks=1 model.width=4 model.heads=1 model.context=8 data.rows=2 optimizer.name=SGD run.steps=2 "
        f"data.source={OLD / 'dgx1.json'} run.resume={OLD / 'step-2'}"
    )
    done = run_command("train", "tiny", *(f"--set={word}" for word in words.split()), timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"resumed from {OLD / 'step-2'}" in done.stdout
    assert "weights sha256 5d7a32a584a53dc36cc71f238ebec7d4be53946add57344b69e01c6922bc0b3a" in done.stdout

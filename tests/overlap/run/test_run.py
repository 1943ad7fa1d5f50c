"""`syntony overlap run`: policies take turns on real ranks, and what they leave behind can be read and explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.overlap.formats.chakra import read_chakra
from syntony.overlap.step.op import COMPUTE
from tests.collectives.running import run_command

ROOT = Path(__file__).parents[3]
TINY = [str(ROOT / "src/syntony/trainer/configs/tiny.toml"), "--set", "parallel.dp=2", "--set", "optimizer.clip=off"]


def test_policies_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = ("--steps", "2", "--rounds", "2", "--json", "-o", tmp_path)
    done = run_command("overlap", "run", *TINY, "--policies", "ddp,dear", *once)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["policies"]
    assert {row["policy"] for row in rows} == {"ddp", "dear"}
    for row in rows:
        assert len(row["steps"]) == 4
        assert min(row["planned"], row["measured"], row["estimate"]) > 0
        recorded = read_chakra(tmp_path / f"{row['policy']}.et")
        moved = [op.key for op in recorded.plan.graph if op.lane != COMPUTE]
        assert moved
        assert len(recorded.times) >= 0.8 * len(recorded.plan.graph)
        events = json.loads((tmp_path / f"{row['policy']}.json").read_text())["traceEvents"]
        titles = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        assert titles == {"device 0, planned", "rank 0, measured", "rank 1, measured"}
    assert main(["overlap", "explain", str(tmp_path / "ddp.et")]) == 0
    assert "did it overlap?" in capsys.readouterr().out


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["--policies", "dpp"], "did you mean ddp"),
        (["-o", "no/where"], "there is no folder no"),
        (["-o", __file__], "it is a file"),
    ):
        assert main(["overlap", "run", *TINY, *arguments]) == 2
        assert sentence in capsys.readouterr().err

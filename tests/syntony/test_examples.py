"""The scripts in examples/ run as they stand."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectives.running import launch, torchrun

EXAMPLES = Path(__file__).parents[2] / "examples"


def start(folder: Path, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    told, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return told


def test_every_example_has_a_test() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"train.py", "numpy_ranks.py", "schedule.py", "my_ring.py", "moe.py"}


def test_train() -> None:
    pytest.importorskip("torch")
    told = torchrun(2, EXAMPLES / "train.py")
    assert told.returncode == 0, told.stderr
    assert all(f"rank {rank}: loss" in told.stdout for rank in range(2))


def test_moe_loses_the_same_with_a_schedule() -> None:
    pytest.importorskip("torch")
    told = [launch(2, EXAMPLES / "moe.py", *way) for way in ((), ("--over",))]
    assert [done.returncode for done in told] == [0, 0], told[0].stderr + told[1].stderr
    plain, over = (sorted(re.findall(r"rank (\d+): loss (\S+?)(?=rank|\s|$)", done.stdout)) for done in told)
    assert [rank for rank, _ in plain] == ["0", "1"]
    assert plain == over


def test_numpy_ranks(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [start(tmp_path, EXAMPLES / "numpy_ranks.py", RANK=str(rank), **meeting) for rank in range(2)]
    for rank, process in enumerate(ranks):
        assert output(process) == f"rank {rank}: sum 3, ranks [0, 1]\n"


def test_schedule(tmp_path: Path) -> None:
    assert "4 ranks have run it" in output(start(tmp_path, EXAMPLES / "schedule.py"))


def test_my_ring(tmp_path: Path) -> None:
    assert "proven" in output(start(tmp_path, EXAMPLES / "my_ring.py"))

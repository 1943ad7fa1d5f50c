"""The README's examples, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from syntony.__main__ import main

ROOT = Path(__file__).parents[2]


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_algorithm_by_hand_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, example = examples()
    script = tmp_path / "my_ring.py"
    script.write_text(example)
    assert main(["compile", str(script), "--ranks", "5"]) == 0
    assert "ring all_reduce on 5 ranks" in capsys.readouterr().out


def test_the_training_example_runs_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    example, _ = examples()
    assert len(example.splitlines()) == 15
    script = tmp_path / "train.py"
    script.write_text(example)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    losses = dict(re.findall(r"rank (\d): loss (\d\.\d{4})", result.stdout))
    assert sorted(losses) == ["0", "1"]

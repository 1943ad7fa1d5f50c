"""The README's example, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_training_example_runs_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
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

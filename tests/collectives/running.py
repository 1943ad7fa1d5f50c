"""Starts the scripts of these tests and reads what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.collectives.launch import launch as launch_here
from tests.forked import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run_python(*arguments: object, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python from the root of the tree, one thread per process."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def launch(ranks: int, script: str | Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script on several forked ranks (launch.py)."""
    return run(launch_here, ranks, Path(script), [*map(str, arguments)], torch=True, **environment)

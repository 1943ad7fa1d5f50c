"""Starts the scripts of these tests and reads what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.collectives.launch import launch as launch_here
from tests.forked import start

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT = 120.0  # seconds


def run_python(*arguments: object, timeout: float = TIMEOUT, **environment: str) -> subprocess.CompletedProcess[str]:
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
    given = (ranks, Path(script), [*map(str, arguments)])
    with NamedTemporaryFile() as output, NamedTemporaryFile() as errors:
        process = start(
            launch_here, *given, environment=os.environ | environment, output=output.name, errors=errors.name
        )
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
        process.join()
        said = (Path(file.name).read_text(errors="replace") for file in (output, errors))
        return subprocess.CompletedProcess(list(map(str, given)), process.exitcode or 0, *said)

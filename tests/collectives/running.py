"""Starts the scripts and commands of these tests and reads what they say.

    run_python    a Python of its own: where what it imports, or how it starts and ends, is the matter
    run_command   `syntony WORDS`
    torchrun      torchrun: an agent, and ranks that may be fresh ones
    launch        ranks without an agent
    faulty_lab    a command in an emulated cluster that has a fault

All but the first are forked from a process that has imported torch already, which takes seconds of every other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syntony.__main__ import main
from tests.collectives.launch import launch as launch_here
from tests.collectives.launch import torchrun as torchrun_here
from tests.forked import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run_python(*arguments: object, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python from the root of the tree."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_command(*words: object, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `syntony WORDS`."""
    settings = {"PYTHONWARNINGS": "ignore", **environment}
    return run(_command, [*map(str, words)], timeout=timeout, torch=True, **settings)


def _command(words: list[str]) -> int:
    sys.argv = ["syntony", *words]
    return main()


def torchrun(
    ranks: int, *words: object, fresh: bool = False, timeout: float = 120.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs torchrun on one host: WORDS are its options, a script, and the script's arguments. `fresh`: each rank is a
    Python of its own, which imports torch by itself."""
    settings = {"PYTHONWARNINGS": "ignore", **environment}
    return run(torchrun_here, ranks, [*map(str, words)], fresh, timeout=timeout, torch=True, **settings)


def launch(
    ranks: int, script: str | Path, *arguments: object, timeout: float = 120.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script on several forked ranks (launch.py); `timeout` in seconds."""
    return run(launch_here, ranks, Path(script), [*map(str, arguments)], torch=True, timeout=timeout, **environment)


def faulty_lab(fault: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `syntony WORDS` on four hosts around a switch, 100 Mbit/s a wire. Skips the test where no lab can be."""
    syntony = [sys.executable, "-m", "syntony"]
    lab = [*syntony, "lab", "star:4", "--rate", "100mbit", "--no-ceilings", "--fault", fault]
    done = subprocess.run(
        [*lab, "--", *syntony, *words], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    if done.returncode == 2:
        pytest.skip(f"no lab here: {done.stderr.strip()}")
    return done

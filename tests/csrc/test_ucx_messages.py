"""What comes over UCX: frames of any length, strangers' messages, members' nonsense (tests/csrc/ucx)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import program as built

SOURCE = Path(__file__).parent / "ucx" / "main.cpp"
NAMES = re.findall(r'\{"(\w+)", \w+\}', SOURCE.read_text())


def run(program: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, name], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def program() -> Path:
    return built("ucx")


def test_every_test_is_known(program: Path) -> None:
    assert sorted(NAMES) == run(program, "list").stdout.split()


@pytest.mark.parametrize("name", NAMES)
def test_messages(program: Path, name: str) -> None:
    done = run(program, name)
    if "UCX cannot be loaded" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr

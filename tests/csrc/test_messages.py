"""What comes over UCX and libfabric: frames of any length, strangers' messages, members' nonsense."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import program as built

TRANSPORTS = ("ucx", "libfabric")
NAMES = re.findall(r'\{"(\w+)", \w+\}', (Path(__file__).parent / "messages" / "main.cpp").read_text())


def run(program: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, name], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_test_is_known(transport: str) -> None:
    assert sorted(NAMES) == run(built(transport), "list").stdout.split()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", NAMES)
def test_messages(transport: str, name: str) -> None:
    done = run(built(transport), name)
    if "cannot be loaded" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr

"""What comes over UCX and libfabric: frames of any length, strangers' messages, members' nonsense."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.programs import program as built

TRANSPORTS = ("ucx", "libfabric")
WIRES = {"ucx": {}, "ucx, memory": {"UCX_TLS": "posix,self", "UCX_MM_ERROR_HANDLING": "y"}, "libfabric": {}}
NAMES = re.findall(r'\{"(\w+)", \w+\}', (Path(__file__).parent / "messages" / "main.cpp").read_text())


def run(program: Path, name: str, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    whole = os.environ | environment
    return subprocess.run([program, name], capture_output=True, text=True, timeout=120, check=False, env=whole)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_test_is_known(transport: str) -> None:
    assert sorted(NAMES) == run(built(transport), "list").stdout.split()


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("name", NAMES)
def test_messages(wires: str, name: str) -> None:
    done = run(built(wires.split(",")[0]), name, WIRES[wires])
    if "cannot be loaded" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr

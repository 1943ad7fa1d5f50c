"""What comes over UCX and libfabric: frames of any length, strangers' messages, members' nonsense."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import program as built

HERE = Path(__file__).parent
NAMES = {
    transport: re.findall(r'\{"(\w+)", \w+\}', (HERE / transport / "main.cpp").read_text())
    for transport in ("ucx", "libfabric")
}


def run(program: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, name], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("transport", NAMES)
def test_every_test_is_known(transport: str) -> None:
    assert sorted(NAMES[transport]) == run(built(transport), "list").stdout.split()


@pytest.mark.parametrize(("transport", "name"), [(one, name) for one, names in NAMES.items() for name in names])
def test_messages(transport: str, name: str) -> None:
    done = run(built(transport), name)
    if "cannot be loaded" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr

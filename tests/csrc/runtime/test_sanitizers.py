"""The runtime under the thread, address and undefined behaviour sanitizers: stress.cpp, linked with the whole core.

Ranks are threads of one process, over shared memory and over TCP, so that the thread sanitizer sees both ends.
Left out of the default run: a build takes minutes. `make sanitize`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.csrc.sanitized import ADDRESS, THREAD, sanitized


@pytest.fixture(scope="session", params=[THREAD, ADDRESS])
def stress(request: pytest.FixtureRequest) -> Path:
    """The program built with one sanitizer."""
    return sanitized("stress", request.param)


def run(stress: Path, *arguments: str, slot_bytes: str = "4096") -> None:
    """RANKS, own or shared, HOSTS, ROUNDS, SECONDS."""
    environment = {**os.environ, "SYNTONY_SLOT_BYTES": slot_bytes, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [stress, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert re.fullmatch(r"ok: [1-9]\d+ random calls\n", done.stdout), done.stdout


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engines", ["own", "shared"])
@pytest.mark.parametrize(
    ("ranks", "hosts", "slot_bytes"),
    [("2", "shm", "4096"), ("2", "tcp", "4096"), ("4", "shm", "131072"), ("4", "tcp", "131072")],
)
def test_set_pieces(stress: Path, ranks: str, hosts: str, engines: str, slot_bytes: str) -> None:
    run(stress, ranks, engines, hosts, "5", "2", slot_bytes=slot_bytes)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_minutes_of_random_calls_over_shared_memory_and_tcp(stress: Path) -> None:
    run(stress, "4", "own", "both", "1", "120")

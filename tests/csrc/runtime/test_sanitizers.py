"""The runtime under the thread, address and undefined behaviour sanitizers: stress.cpp, linked with the whole core.

Ranks are threads of one process, over shared memory and over TCP, so that the thread sanitizer sees both ends.
Left out of the default run: a build takes minutes. `make sanitize`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.csrc.sanitized import ADDRESS, THREAD, program


@pytest.fixture(scope="session", params=[THREAD, ADDRESS])
def stress(request: pytest.FixtureRequest) -> Path:
    """The program built with one sanitizer."""
    return program("stress", request.param)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engines", ["own", "shared"])
@pytest.mark.parametrize(
    ("ranks", "hosts", "slot_bytes"),
    [(2, "shm", "4096"), (2, "tcp", "4096"), (4, "shm", "131072"), (4, "tcp", "131072")],
)
def test_the_runtime_is_clean(stress: Path, ranks: int, hosts: str, engines: str, slot_bytes: str) -> None:
    environment = {**os.environ, "SYNTONY_SLOT_BYTES": slot_bytes, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [stress, str(ranks), engines, hosts, "5"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-8000:]

"""compute-sanitizer over what one rank does alone: no access out of bounds, no race in a block.

It may let kernels of several streams take turns, and ranks that are kernels of their own would wait for each other in
vain.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

SUMMARY = re.compile(r"^=+ (?:ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards .*\(0 errors, 0 warnings\))$", re.M)


@pytest.fixture
def sanitizer() -> str:
    """The path of compute-sanitizer; skips where there is none."""
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("there is no compute-sanitizer on this machine")
    return found


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_it_finds_nothing(request: pytest.FixtureRequest, tool: str) -> None:
    cuda = pytest.importorskip("syntony._cuda", reason="the CUDA executor was not built here: there is no nvcc")
    if cuda.device_count() == 0:
        pytest.skip("there is no CUDA GPU on this machine")
    sanitizer = request.getfixturevalue("sanitizer")
    script = [sys.executable, "-c", "from tests.csrc.cuda.test_gpu_sanitized import test_one_rank; test_one_rank()"]
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert SUMMARY.search(done.stdout), done.stdout[-6000:]


def test_a_summary_with_errors_is_none() -> None:
    assert SUMMARY.search("========= ERROR SUMMARY: 0 errors")
    assert SUMMARY.search("x\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n")
    for line in ("ERROR SUMMARY: 10 errors", "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"):
        assert not SUMMARY.search(f"========= {line}")

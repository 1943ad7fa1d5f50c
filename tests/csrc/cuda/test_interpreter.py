"""The GPU's interpreter and protocols on threads of the host: against the CPU's arithmetic, bit for bit.

2 to 8 ranks; random Programs, all builders, one-sided exchange; simple, ll and ll128; lanes that share thread blocks.
Under the thread sanitizer with `make sanitize`.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests import sampled
from tests.csrc.sanitized import THREAD, sanitized
from tests.programs import program


@pytest.fixture(scope="module")
def interpreter() -> Path:
    return program("cuda_interpreter")


def passes(interpreter: Path, what: str, seed: int, jobs: int) -> None:
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    command = [str(interpreter), what, str(seed), str(jobs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-8000:]}"
    assert re.fullmatch(r"ok: \d+ jobs\n", done.stdout)


def test_programs_give_the_cpus_bits(interpreter: Path) -> None:
    passes(interpreter, "programs", random.randrange(1 << 40), 300 if sampled.SWEEPING else 100)


def test_who_never_comes_is_named(interpreter: Path) -> None:
    passes(interpreter, "troubles", random.randrange(1 << 40), 30)


def test_no_flag_is_so_old_that_it_could_be_taken_for_a_new_one(interpreter: Path) -> None:
    passes(interpreter, "flags", random.randrange(1 << 40), 20)


def test_switches_slice_and_flag_rightly(interpreter: Path) -> None:
    passes(interpreter, "switched", random.randrange(1 << 40), 60 if sampled.SWEEPING else 20)


def test_the_copy_engine_reuses_its_stages_rightly(interpreter: Path) -> None:
    passes(interpreter, "bulk", random.randrange(1 << 40), 200)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("what", "jobs"), [("programs", 600), ("troubles", 30), ("flags", 10), ("switched", 150), ("bulk", 200)]
)
def test_under_the_thread_sanitizer(what: str, jobs: int) -> None:
    passes(sanitized("cuda_interpreter", THREAD), what, random.randrange(1 << 40), jobs)

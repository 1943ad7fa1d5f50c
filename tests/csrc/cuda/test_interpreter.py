"""The GPU's interpreter and protocols on threads of the host: against the CPU's arithmetic, bit for bit.

2 to 8 ranks; random Programs, all builders, one-sided exchange; simple, ll and ll128; lanes that share thread blocks.
Under the thread sanitizer with `make sanitize`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import csrc
from tests.csrc.sanitized import THREAD
from tests.csrc.sanitized import program as sanitized

ROOT = Path(__file__).parents[3]
HOST_SOURCES = [ROOT / "csrc/cuda" / name for name in ("lowering.cpp", "movements.cpp", "pull.cpp", "switched.cpp")]
TESTS = sorted(Path(__file__).parent.glob("*.cpp"))
STRICT = ["-std=c++20", "-O0", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion"]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    result = tmp_path_factory.mktemp("cuda") / "interpreter"
    here = Path(csrc.__file__).parent
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests/csrc/cuda'}"]
    library = [str(here / "libsyntony.so"), f"-Wl,-rpath,{here}"]
    command = [compiler, *STRICT, *include, *map(str, HOST_SOURCES + TESTS), *library, "-pthread", "-o", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return result


def passes(program: Path, what: str, seed: int, jobs: int) -> None:
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    command = [str(program), what, str(seed), str(jobs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-8000:]}"
    assert re.fullmatch(r"ok: \d+ jobs\n", done.stdout)


def test_programs_give_the_cpus_bits(interpreter: Path) -> None:
    passes(interpreter, "programs", random.randrange(1 << 40), 300)


def test_who_never_comes_is_named(interpreter: Path) -> None:
    passes(interpreter, "troubles", random.randrange(1 << 40), 30)


def test_no_flag_is_so_old_that_it_could_be_taken_for_a_new_one(interpreter: Path) -> None:
    passes(interpreter, "flags", random.randrange(1 << 40), 20)


def test_switches_slice_and_flag_rightly(interpreter: Path) -> None:
    passes(interpreter, "switched", random.randrange(1 << 40), 60)


def test_the_copy_engine_reuses_its_stages_rightly(interpreter: Path) -> None:
    passes(interpreter, "bulk", random.randrange(1 << 40), 200)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("what", "jobs"), [("programs", 600), ("troubles", 30), ("flags", 10), ("switched", 150), ("bulk", 200)]
)
def test_under_the_thread_sanitizer(what: str, jobs: int) -> None:
    passes(sanitized("cuda_interpreter", THREAD), what, random.randrange(1 << 40), jobs)

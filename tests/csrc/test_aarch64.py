"""The core on 64-bit Arm: compiled by a cross compiler, its programs run by qemu-user (`make test-aarch64`).

Needs Debian's g++-aarch64-linux-gnu and qemu-user. Left out of the default run: the build takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import ROOT

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR, "cmake") if shutil.which(name) is None]
FOLDER = ROOT / "build" / "aarch64"
ENCRYPTED = ("encrypted", "changed_on_the_way", "said_twice", "another_key")
"""What tests/csrc/tcp/encryption.cpp holds: it needs OpenSSL for Arm, beside the emulator's C library."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {', '.join(MISSING)} (g++-aarch64-linux-gnu, qemu-user)"),
]


@pytest.fixture(scope="module")
def programs() -> Path:
    """Built; what has changed, that is. Barely optimized: compiled twice as fast, and run by an emulator anyway."""
    options = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -DNDEBUG", "-DSYNTONY_IN_PLACE=OFF"]
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={Path(__file__).parent / 'aarch64' / 'toolchain.cmake'}"
    for command in (
        ["cmake", "-S", ROOT, "-B", FOLDER, "-G", "Ninja", toolchain, *options],
        ["cmake", "--build", FOLDER, "--target", "cross_programs", "--parallel", str(os.cpu_count())],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return FOLDER / "tests"


def emulated(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", str(program), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def run(program: Path, *words: str) -> str:
    done = emulated(program, *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def test_neon_kernels_give_the_portable_bits(programs: Path) -> None:
    said = run(programs / "kernels")
    assert re.match(r"neon, seed \d+\nok: \d{4,} comparisons", said), said


@pytest.mark.parametrize("hosts", ["shm", "tcp", "both"])
def test_everything_beside_each_other(programs: Path, hosts: str) -> None:
    """Set pieces, then random calls in three groups (tests/csrc/runtime/stress.cpp)."""
    assert run(programs / "stress", "3", "own", hosts, "2", "5").startswith("ok: ")


def test_tcp(programs: Path) -> None:
    names = run(programs / "tcp_plain", "list").split()
    assert len(names) > 20
    for name in names:
        if name not in ENCRYPTED:
            run(programs / "tcp_plain", name)


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_tcp(programs: Path, name: str) -> None:
    done = emulated(programs / "tcp_plain", name)
    if "OpenSSL cannot be loaded" in done.stderr:
        pytest.skip("there is no OpenSSL for 64-bit Arm (libssl3:arm64)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", ["programs", "troubles", "flags"])
def test_interpreter_of_kernels(programs: Path, part: str) -> None:
    """Programs as a GPU runs them, by threads of the host (tests/csrc/cuda/interpreter.cpp)."""
    assert "ok" in run(programs / "cuda_interpreter", part, "1", "30")


@pytest.mark.parametrize("target", ["frames", "control", "handshake", "aggregator", "programs"])
def test_hostile_input(programs: Path, target: str) -> None:
    assert f"{target}: 300 inputs" in run(programs / "fuzz", target, "300")

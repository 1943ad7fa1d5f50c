"""Fuzzing what reads bytes of others: frames, control messages, the handshake, addresses, the aggregator, and the
executor with right and wrong Programs (tests/csrc/fuzz).

A taste in every run, with the library as it is installed; millions under sanitizers by `make fuzz`.
"""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.csrc.sanitized import ADDRESS, sanitized
from tests.programs import program

TARGETS = ["frames", "control", "handshake", "directory", "aggregator", "packets", "programs"]


@pytest.fixture(scope="module")
def fuzz() -> Path:
    """The fuzzer over the library that Python has loaded."""
    return program("fuzz")


def attack(fuzz: Path, target: str, count: int, seed: int) -> str:
    done = subprocess.run(
        [fuzz, target, str(count), str(seed)], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    assert re.match(rf"{target}: {count} inputs, [1-9]\d* believed whole", done.stdout), done.stdout
    return done.stdout


def test_every_target_is_known(fuzz: Path) -> None:
    assert subprocess.run([fuzz], capture_output=True, text=True, check=True).stdout.split() == TARGETS
    wrong = subprocess.run([fuzz, "rhubarb", "1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "there is no target 'rhubarb'" in wrong.stderr


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("frames", 10_000),
        ("control", 10_000),
        ("handshake", 3_000),
        ("directory", 10_000),
        ("aggregator", 3_000),
        ("packets", 5_000),
        ("programs", 5_000),
    ],
)
def test_nothing_breaks(fuzz: Path, target: str, count: int) -> None:
    attack(fuzz, target, count, random.SystemRandom().randrange(1 << 32))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("frames", 1_000_000),
        ("control", 1_000_000),
        ("handshake", 200_000),
        ("directory", 1_000_000),
        ("aggregator", 100_000),
        ("packets", 1_000_000),
        ("programs", 1_000_000),
    ],
)
def test_nothing_breaks_under_sanitizers(target: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = attack(sanitized("fuzz", ADDRESS), target, count, random.SystemRandom().randrange(1 << 32))
    with capsys.disabled():
        print("\n" + found, end="")

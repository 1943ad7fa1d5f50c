"""TCP between ranks: runs each test of the C++ program in tests/csrc/tcp, under sanitizers."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import program as built

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("csrc/core/tcp/*.cpp")) + sorted(ROOT.glob("tests/csrc/tcp/*.cpp"))
NAMES = [name for source in SOURCES for name in re.findall(r'Test\{"(\w+)"', source.read_text())]


def run(command: list[str], seconds: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `command` with no SYNTONY_ variable set but those given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNTONY_")} | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)


@pytest.fixture(scope="module", params=["thread", "address"])
def program(request: pytest.FixtureRequest) -> Path:
    return built(f"tcp_{request.param}")


def passes(program: Path, name: str, seed: int = 1) -> None:
    done = run([str(program), name, str(seed)])
    assert done.returncode == 0, done.stderr  # begins with the name and the seed


def test_every_test_is_known(program: Path) -> None:
    assert len(NAMES) == len(set(NAMES)) > 0
    assert sorted(run([str(program), "list"]).stdout.split()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_tcp(program: Path, name: str) -> None:
    passes(program, name)


@pytest.mark.parametrize("seed", [1, 2, 3, None, *(pytest.param(n, marks=pytest.mark.sweep) for n in range(4, 9))])
def test_streams_of_random_shape(program: Path, seed: int | None) -> None:
    """None: another one in each run, which a failure names."""
    passes(program, "streams", random.SystemRandom().randrange(1 << 32) if seed is None else seed)


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_frames_in_parts(program: Path, seed: int) -> None:
    """1: to their slot; 2: to where they are expected; 6: there, until that is forgotten between two parts."""
    passes(program, "parts", seed)


@pytest.mark.parametrize("seed", [1, 2, 3, None, *(pytest.param(n, marks=pytest.mark.sweep) for n in range(4, 20))])
def test_sockets_cut_at_random(program: Path, seed: int | None) -> None:
    """None: another one in each run, which a failure names."""
    passes(program, "cut_flows", random.SystemRandom().randrange(1 << 32) if seed is None else seed)


@pytest.mark.parametrize("name", ["cut_control", "cut_relays"])
@pytest.mark.parametrize("seed", [2, None, *(pytest.param(n, marks=pytest.mark.sweep) for n in range(3, 20))])
def test_control_connections_cut_at_random(program: Path, name: str, seed: int | None) -> None:
    """None: another one in each run, which a failure names."""
    passes(program, name, random.SystemRandom().randrange(1 << 32) if seed is None else seed)


def test_a_listener_explains_its_choice(program: Path) -> None:
    done = run([str(program), "explain"], SYNTONY_DEBUG="INFO", SYNTONY_SOCKET_IFNAME="lo")
    lines = [line for line in done.stderr.splitlines() if "INFO tcp: " in line]
    assert len(lines) == 1, done.stderr
    assert re.match(r"syntony \[process \d+\] INFO tcp: listening on lo 127\.0\.0\.1:\d+", lines[0]), done.stderr


def test_a_listener_is_silent_unless_asked(program: Path) -> None:
    assert run([str(program), "explain"]).stderr == ""


def test_a_wrong_variable_is_a_sentence(program: Path) -> None:
    done = run([str(program), "explain"], SYNTONY_TCP_FLOWS="many")
    assert done.returncode == 1
    assert "SYNTONY_TCP_FLOWS=many is not a whole number from 1 to 64" in done.stderr
    done = run([str(program), "explain"], SYNTONY_TCP_KEEPALIVE="1")
    assert done.returncode == 1
    assert "SYNTONY_TCP_KEEPALIVE=1 is not a whole number from 2 to 3600" in done.stderr

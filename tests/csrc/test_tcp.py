"""TCP between ranks: builds the C++ test program in tests/csrc/tcp and runs each of its tests, under sanitizers."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import csrc

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("csrc/core/tcp/*.cpp")) + sorted(ROOT.glob("tests/csrc/tcp/*.cpp"))
NAMES = [name for source in SOURCES for name in re.findall(r'Test\{"(\w+)"', source.read_text())]
SANITIZERS = {
    "thread": ["-O1", "-fsanitize=thread"],
    "address": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}
STRICT = ["-std=c++20", "-g1", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion"]


def run(command: list[str], seconds: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `command` with no SYNTONY_ variable set but those given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNTONY_")} | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)


@pytest.fixture(scope="module", params=list(SANITIZERS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp(f"tcp-{request.param}")
    flags = SANITIZERS[request.param]
    probe = folder / "probe.cpp"
    probe.write_text("int main() { return 0; }\n")
    built = run([compiler, *flags, str(probe), "-o", str(folder / "probe")])
    if built.returncode != 0 or run([str(folder / "probe")]).returncode != 0:
        pytest.skip(f"the {request.param} sanitizer does not work on this machine")

    # One translation unit: half the time of many. (The build compiles the sources one by one.) What they need of the
    # rest of the core comes from the library that Python has loaded; make sanitize has all of it under sanitizers.
    whole = folder / "tcp_test.cpp"
    whole.write_text("".join(f'#include "{source}"\n' for source in SOURCES))
    result = folder / "tcp_test"
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests/csrc/tcp'}"]
    here = Path(csrc.__file__).parent
    library = [str(here / "libsyntony.so"), f"-Wl,-rpath,{here}"]
    done = run([compiler, *STRICT, *flags, *include, str(whole), *library, "-pthread", "-o", str(result)], seconds=600)
    assert done.returncode == 0, done.stderr
    return result


def passes(program: Path, name: str, seed: int = 1) -> None:
    done = run([str(program), name, str(seed)])
    assert done.returncode == 0, done.stderr  # begins with the name and the seed


def test_every_test_is_known(program: Path) -> None:
    assert len(NAMES) == len(set(NAMES)) > 0
    assert sorted(run([str(program), "list"]).stdout.split()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_tcp(program: Path, name: str) -> None:
    passes(program, name)


@pytest.mark.parametrize("seed", [*range(1, 9), None])
def test_streams_of_random_shape(program: Path, seed: int | None) -> None:
    """None: another one in each run, which a failure names."""
    passes(program, "streams", random.SystemRandom().randrange(1 << 32) if seed is None else seed)


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

"""What ranks and threads share without locks, on a machine of weak memory order (tests/csrc/model).

The sources that ship go through every order of steps, and every value that the C++ memory model lets a load read:
with 2 and 3 ranks here, with more rounds and frames by `-m soak`. Each order that they ask for is then weakened in
turn, and must be missed: the machine finds what is wrong without it.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.programs import ROOT, program

SOURCES = (
    "one_host/shared_rounds.cpp",
    "recorder/recorder.cpp",
    "shm/shm_board.cpp",
    "shm/shm_transport.cpp",
)


def run(*words: str) -> str:
    done = subprocess.run([program("memory_order"), *words], capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_machine_is_neither_blind_nor_sees_ghosts() -> None:
    lines = run("litmus").splitlines()
    seen = sum(" seen " in line for line in lines)
    assert 8 <= seen <= len(lines) - 8


def test_what_ships_is_right_in_every_order() -> None:
    lines = run("explore").splitlines()
    assert len(lines) > 10
    assert all(" whole, " in line for line in lines)


def test_every_order_that_is_weakened_is_missed() -> None:
    found = set(re.findall(r"^(\w+) (\w+\.cpp):(\d+) (\w+) +\w", run("weaken"), re.MULTILINE))
    asked = {
        (
            "fence" if "fence(" in line else "load" if ".load(" in line else "store",
            path.split("/")[1],
            str(number),
            order,
        )
        for path in SOURCES
        for number, line in enumerate((ROOT / "csrc" / "core" / path).read_text().splitlines(), 1)
        for order in re.findall(r"memory_order_(acquire|release|acq_rel|seq_cst)", line)
    }
    assert found == asked, "an order that no scenario comes by"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_more_ranks_rounds_and_frames(capsys: pytest.CaptureFixture[str]) -> None:
    said = run("explore", "soak")
    with capsys.disabled():
        print("\n" + said, end="")

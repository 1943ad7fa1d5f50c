"""Whole groups of many ranks, in few processes (tests/csrc/crowd): formed, at work, and told of a death."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.programs import program


def crowd(ranks: int, processes: int) -> str:
    """What it says; it fails where a result, or what a survivor says of the dead rank, is wrong."""
    done = subprocess.run(
        [program("crowd"), str(ranks), str(processes)], capture_output=True, text=True, timeout=300, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    held = [int(number) for number in re.findall(r"a rank holds (\d+) bytes", done.stdout)]
    assert len(held) == 2, done.stdout  # formed, and after a sum
    assert max(held) <= 64 * 1024 + 100 * ranks
    return done.stdout


def test_forty_ranks_form_a_group_and_name_the_dead() -> None:
    assert "all survivors have named the dead rank" in crowd(40, 2)


@pytest.mark.sweep
@pytest.mark.alone
@pytest.mark.parametrize("ranks", [128, 512])
def test_hundreds_of_ranks_form_a_group_and_name_the_dead(ranks: int) -> None:
    assert "all survivors have named the dead rank" in crowd(ranks, 2)

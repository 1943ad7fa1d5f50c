"""How the ranks of a host agree on the way that moves their large blocks."""

from __future__ import annotations

import os
import subprocess

from tests.programs import program


def test_ranks_agree_on_the_fastest_way() -> None:
    """By costs that the program sets: the same on all ranks, the fastest for all, also once they change."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    done = subprocess.run([program("agreed"), str(seed)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

"""How ranks of a host write what their peers read."""

from __future__ import annotations

import os
import subprocess

from tests.programs import program


def test_copies_that_peers_read() -> None:
    """The faster of two ways is found and followed, by costs that the program sets; both copy every byte."""
    seed = int.from_bytes(os.urandom(4), "little")
    done = subprocess.run([program("shown"), str(seed)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

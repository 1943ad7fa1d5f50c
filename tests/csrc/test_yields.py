"""For how long a rank leaves its CPU to other programs."""

from __future__ import annotations

import subprocess

from tests.programs import program


def test_a_long_yield_is_believed_once_another_one_confirms_it() -> None:
    done = subprocess.run([program("yields")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

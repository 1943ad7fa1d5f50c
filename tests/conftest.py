"""What every test shares: reproducible randomness, no example database in the tree, and the wires of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of everything that measures how long a test takes
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """One at a time of those marked `wires`, whichever worker they are on."""
    if item.get_closest_marker("wires") is None:
        return (yield)
    with (Path(tempfile.gettempdir()) / f"syntony-wires-{os.getuid()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)

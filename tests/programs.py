"""The programs and libraries that tests compile (tests/CMakeLists.txt), which `make test` has built."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "editable" / "tests"


def program(name: str) -> Path:
    """Where it is. Skips the test where this machine cannot build or run it."""
    known = FOLDER / "programs.txt"
    if known.exists() and name not in known.read_text().split():
        pytest.skip(f"{name} cannot be built or run on this machine")
    path = FOLDER / name
    if not path.exists():
        pytest.fail(f"{path} is missing; `make programs` builds what tests need", pytrace=False)
    return path

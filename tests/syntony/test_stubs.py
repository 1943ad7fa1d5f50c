"""The committed stubs are what nanobind's generator makes of the modules that were built."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("nanobind") is None, reason="needs nanobind, which the build requires")
@pytest.mark.parametrize("module", ["_core", "_solve", "_cuda", "_emulation"])
def test_stubs_are_as_generated(module: str, tmp_path: Path) -> None:
    if find_spec(f"syntony.{module}") is None:
        pytest.skip(f"syntony.{module} was not built here")
    made = tmp_path / f"{module}.pyi"
    patterns = ROOT / "csrc" / "bindings" / "stub_patterns.txt"
    what = ["-q", "-m", f"syntony.{module}", "-p", str(patterns), "-o", str(made)]
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", *what], check=True, timeout=60)
    committed = ROOT / "src" / "syntony" / f"{module}.pyi"
    assert made.read_text() == committed.read_text(), f"src/syntony/{module}.pyi is out of date: run make stubs"

"""What tests of CUDA code share: whether there is a compiler."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def nvcc() -> str:
    """The path of nvcc; skips where there is none."""
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("there is no nvcc on this machine")
    return str(Path(found))


@pytest.fixture
def cupy() -> Any:
    """The module, where it and a GPU are; skips elsewhere."""
    module = pytest.importorskip("cupy", reason="cupy is not installed")
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"there is no CUDA GPU on this machine: {error}")
    if count == 0:
        pytest.skip("there is no CUDA GPU on this machine")
    return module

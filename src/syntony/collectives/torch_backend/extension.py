"""Loads the compiled part of the torch backend, `syntony._torch`, or explains in a sentence why it cannot.

c10d's classes have no stable ABI. The extension is built for one minor version of torch (CMakeLists.txt) and would
crash in another.
"""

from __future__ import annotations

from types import ModuleType

FIRST, LAST = (2, 11), (2, 15)
"""The supported versions of torch, as in pyproject.toml and CMakeLists.txt."""

BUILD = "pip install --force-reinstall --no-deps PATH, where PATH is Syntony's source tree or sdist"


def load() -> ModuleType:
    """`syntony._torch`. If there is none for this torch, ImportError that says how to get it."""
    import torch

    here = torch.__version__
    version = _minor(here)
    if not FIRST <= version <= LAST:
        known = f"{_text(FIRST)} to {_text(LAST)}"
        mend = f"pip install 'torch>={_text(FIRST)},<{_text((LAST[0], LAST[1] + 1))}'"
        raise ImportError(
            f"Syntony's torch backend knows torch {known}, and this is torch {here}; install one of these ({mend}), "
            f"then build Syntony for it: {BUILD}"
        )
    try:
        from syntony import _torch
    except ImportError as error:
        raise ImportError(
            f"Syntony's torch backend is missing or was built for another torch than this one ({here}); build it for "
            f"this one: {BUILD} ({error})"
        ) from error
    if _minor(_torch.TORCH_VERSION) != version:
        raise ImportError(
            f"Syntony's torch backend was built for torch {_torch.TORCH_VERSION}, and this is torch {here}; build it "
            f"for this one: {BUILD}"
        )
    return _torch


def _minor(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"

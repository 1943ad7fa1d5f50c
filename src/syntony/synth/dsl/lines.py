"""The current line of the user's script, which every error message names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from syntony.base.command import UserError

_HERE = str(Path(__file__).parent)


class DslError(UserError):
    """A mistake in a hand-written algorithm: `file:line: what is wrong`."""


def here() -> str:
    """`file:line` of the innermost caller outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and Path(frame.f_code.co_filename).parent == Path(_HERE):
        frame = frame.f_back
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def refused(message: str, at: str | None = None) -> DslError:
    """The error at a line of the user's script (default: the current one)."""
    return DslError(f"{at or here()}: {message}")

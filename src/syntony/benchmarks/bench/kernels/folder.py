"""Where other projects' kernels are installed: apart from the environment, where nothing imports them."""

from __future__ import annotations

import sys
from pathlib import Path

from syntony.base.command import UserError


def folder(name: str) -> Path:
    """The folder of the peer `name`."""
    return Path(sys.prefix) / "peers" / name


def require(name: str, file: Path, install: str) -> None:
    """Raises UserError that says how to install the peer `name` if its `file` is missing; `install`: pip's words."""
    if not file.exists():
        raise UserError(
            f"peer {name} is not installed: {sys.executable} -m pip install --no-deps --target {folder(name)} {install}"
        )

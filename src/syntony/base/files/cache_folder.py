"""This user's cache folder, and subfolders of it that nobody else can write.

Contents that are trusted without another check (proofs, machine code) are kept only where no other user can write.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder(name: str) -> Path:
    """$XDG_CACHE_HOME/syntony/`name` (~/.cache without XDG_CACHE_HOME). RuntimeError if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syntony" / name


@contextmanager
def private_folder(name: str) -> Iterator[int | None]:
    """A descriptor of `cache_folder(name)`, which is created if missing.

    None if it cannot be created or others can write to it: an unusable cache is not an error. Operations relative to
    the descriptor stay in the folder that was checked, whatever its path names later.
    """
    folder = _open(name)
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)


def _open(name: str) -> int | None:
    try:
        path = cache_folder(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    found = os.fstat(folder)
    if found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return folder
    os.close(folder)
    return None

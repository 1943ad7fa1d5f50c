"""A cache of the checker's proofs for this user, so that loading a Program again does not prove it again.

    $XDG_CACHE_HOME/syntony/proofs/5f0c..e1       an empty file whose name says all (~/.cache without XDG_CACHE_HOME)

A proof is named by a SHA-256 over the whole Program, its FIFO depth included, and the sources of the checker: no other
Program has that name, and proofs of another version of the checker do not count. It is trusted because of its location,
a folder that only this user can write (`private_folder`), never because of its contents. Without such a folder,
everything is proven anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from syntony.base.files.cache_folder import private_folder
from syntony.synth.checker import Verdict, check_program
from syntony.synth.model.program import Program

_FOLDER = "proofs"


def proven(program: Program) -> Verdict:
    """The checker's verdict on the Program, new or cached."""
    name = digest(program)
    if _kept(name):
        return Verdict(valid=True)
    verdict = check_program(program)
    if verdict:
        _keep(name)
    return verdict


@cache
def checker_digest() -> str:
    """A hash of the sources of this package, in hexadecimal."""
    folder = Path(__file__).parent
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()


def digest(program: Program) -> str:
    """The name of the Program's proof, in hexadecimal."""
    columns = program.columns()
    tables = {key: table for key, table in columns.items() if isinstance(table, np.ndarray)}
    scalars = {key: value for key, value in columns.items() if key not in tables}
    shapes = {key: table.shape for key, table in tables.items()}
    head = {"checker": checker_digest(), "program": scalars, "shapes": shapes}
    found = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for key in sorted(tables):
        found.update(np.ascontiguousarray(tables[key], "<i4").tobytes())
    return found.hexdigest()


def _kept(name: str) -> bool:
    with private_folder(_FOLDER) as folder:
        if folder is None:
            return False
        try:
            entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(entry.st_mode) and entry.st_uid == os.geteuid()


def _keep(name: str) -> None:
    """Creates an empty file, which is atomic without a temporary name."""
    with private_folder(_FOLDER) as folder:
        if folder is None:
            return
        with suppress(OSError):  # another process was first, or the disk is full, and the next load proves it again
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))

"""Files that appear whole or not at all: written under a name that nobody can guess, then renamed.

Such a name is opened only if it does not exist, so that in a folder that others can write, too, no link of theirs leads
the writing elsewhere.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from syntony.base.strict_json import FileError


def write_text(path: str | Path, text: str) -> None:
    """`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Writes `content` beside `path` and renames it, so that no reader ever sees half a file.

    Raises `FileError` if it cannot be written; then there is no new file, and an old one is as it was.
    """
    part = beside(path)
    try:
        with part.open("xb") as file:  # x: O_EXCL, which follows no link
            file.write(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written: {error.strerror}") from None


def beside(path: str | Path) -> Path:
    """A hidden name in the same folder that nothing has, and that nobody can guess."""
    return Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(8)}.part")

"""Writes files whole or not at all: under an unpredictable temporary name, which is then renamed.

The temporary file is opened only if it does not exist, so that in a folder that others can write too, no link of theirs
can redirect the write. Pipes and devices are written directly.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from syntony.base.files.strict_json import FileError


def write_text(path: str | Path, text: str) -> None:
    """`write_bytes` of the text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Writes `content` beside `path` and renames it, so that readers never see a partial file.

    Raises `FileError` if it cannot be written; an existing file is then unchanged.
    """
    part = None if is_special(path) else beside(path)
    try:
        if part is None:
            Path(path).write_bytes(content)
            return
        with part.open("xb") as file:  # x: O_EXCL, which follows no link
            file.write(content)
        part.replace(path)
    except BaseException as error:
        if part is not None:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileError(f"{path}: cannot be written: {error.strerror}") from None
        raise


def is_special(path: str | Path) -> bool:
    """Whether the path exists and is neither a file nor a folder: a pipe, a device."""
    path = Path(path)
    return path.exists() and not path.is_file() and not path.is_dir()


def beside(path: str | Path) -> Path:
    """An unused, unpredictable hidden name in the same folder."""
    return Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(8)}.part")

"""Strict readers of text files and TOML; strict_json.py reads JSON."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from syntony.base.files.strict_json import FileError


def read_text(path: str | Path, most: int | None = None) -> str:
    """A file's text. Raises `FileError`: it cannot be read, is not UTF-8, or has more than `most` bytes."""
    try:
        with Path(path).open("rb") as file:
            content = file.read() if most is None else file.read(most + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    if most is not None and len(content) > most:
        raise FileError(f"{path}: too large; {most >> 20} MiB are read at most")
    return decoded(content, path)


def decoded(content: bytes, where: str | Path) -> str:
    """A file's content as text, without a byte order mark. Raises `FileError`."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: not a text file: byte {error.start} is not UTF-8") from None


def parse_toml(text: str, where: str | Path) -> dict[str, Any]:
    """The tables of a TOML document. Raises `FileError` that begins with `where`."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FileError(f"{where}: not TOML: nested too deeply") from None
    except ValueError as error:  # also raised for numbers of thousands of digits, not only TOMLDecodeError
        raise FileError(f"{where}: not TOML: {error}") from None

"""Strict JSON, the first step of every JSON reader of this package.

The standard reader accepts repeated keys (the last one wins) and NaN. This one rejects both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NoReturn

from syntony.base.command import UserError


class FileError(UserError):
    """A file that cannot be read or written, or has invalid contents."""


def parse(text: str, where: str, what: str) -> object:
    """The text's value. Raises `FileError` that begins with `where`; `what` names the expected kind of file."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise FileError(f"{where}: not a {what}: nested too deeply") from None
    except ValueError as error:
        raise FileError(f"{where}: not a {what}: {error}") from None


def shown(value: object) -> str:
    """A value for use in a message: JSON of at most 40 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def _without_repeats(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f'the key "{key}" occurs twice in one object')
        result[key] = value
    return result


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number that a file can hold")

"""What the verbs of this room accept as arguments: sizes, counts, ranks, seconds."""

from __future__ import annotations

import argparse
import math
import re

_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)(i?B)?", re.IGNORECASE)


def size(text: str) -> int:
    """Bytes: `8`, `64K`, `1M`, `1G` (powers of 1024)."""
    match = _SIZE.fullmatch(text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; write bytes such as 8, 64K, 1M or 1G")
    power: int = 1024 ** " KMGT".index(match[2].upper() or " ")
    return int(match[1]) * power


def count(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def rank(text: str) -> int:
    """One rank."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a rank; ranks are 0, 1, ..")
    return int(text)


def ranks(text: str) -> tuple[int, ...]:
    """Ranks between commas."""
    return tuple(rank(part) for part in text.split(","))


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value

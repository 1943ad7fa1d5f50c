"""Parsers of common command-line arguments: sizes, counts, ranks, seconds."""

from __future__ import annotations

import argparse
import math

from syntony.base import quantity
from syntony.base.command import UserError


def size_or_zero(text: str) -> int:
    """Bytes: `8`, `64K`, `1M`, `1G` (powers of 1024)."""
    try:
        return quantity.size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; write {error}") from None


def size(text: str) -> int:
    """Bytes, at least one."""
    found = size_or_zero(text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; write bytes, at least 1")
    return found


def count(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def wire_rate(text: str) -> str:
    """Bits/s of a wire, as it is written: `200mbit`, `10gbit`."""
    try:
        quantity.bit_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a rate; write {error}") from None
    return text


def rank(text: str) -> int:
    """One rank."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a rank; ranks are 0, 1, ..")
    return int(text)


def ranks(text: str) -> tuple[int, ...]:
    """Ranks and ranges of ranks, separated by commas: `0-7,16`; each at most once. The order is kept."""
    found: list[int] = []
    for part in text.split(","):
        try:
            found += quantity.ranks(part)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"'{part}' is not {error}") from None
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"'{text}' names a rank twice")
    return tuple(found)


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def pairs(text: str, where: str) -> dict[str, str]:
    """`k=v,k=v`. Raises UserError that begins with `where`."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key in found:
            raise UserError(f"{where}: {part!r} is not one key=value" if not equals else f"{where}: {key!r} twice")
        found[key] = value
    return found


def exponent(text: str) -> float:
    """0 or above, such as 1.2."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exponent: it must be 0 or above, such as 1.2")
    return value

"""Numbers of things, as sentences say them."""

from __future__ import annotations

from fractions import Fraction


def counted(number: int | Fraction, noun: str) -> str:
    """ "1 chunk", "2 chunks", "3/2 chunks": the plural is the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""Numbers as users write them: counts, sizes of grids, bytes or bits per second (exact), seconds, on and off.

Each parser takes the text of one argument and returns its value, or raises `ValueError` with what would be right
(a phrase without the argument's name, which the caller knows).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

# The exponent is bounded, so that "1e999999999" is refused instead of computed.
_DECIMAL = re.compile(r"[0-9]{1,400}(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,2})?")
_BIT_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?)([kmg])bit")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?)(ns|us|ms|s)")
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{0,9})?(?:e[0-9]{1,2})?) ?(?:([KMGT])(iB|B)?|B)?", re.IGNORECASE)
_RATE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{0,9})?(?:e[0-9]{1,2})?) ?([KMGT]?)(i?)(B|b|bit)/s", re.IGNORECASE)
_RATIO = re.compile(r"[0-9]{1,400}/[0-9]{1,400}")
_RANKS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([1-9][0-9]{0,5}))?)?")


def count(text: str) -> int:
    """A whole number: `8`."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("a whole number such as 8")
    return int(text)


def ranks(text: str) -> range:
    """A rank or a range of ranks, perhaps with a step: `3`, `0-7`, `0-63:8`."""
    found = _RANKS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if found is None or last < first:
        raise ValueError("a rank or a range of ranks such as 3, 0-7 or 0-63:8 (every eighth)")
    return range(first, last + 1, int(found[3] or 1))


def shape(text: str) -> tuple[int, ...]:
    """The sizes of a grid: `4x4x4`."""
    if not re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})*", text):
        raise ValueError("sizes joined by x, such as 4x4x4")
    return tuple(int(size) for size in text.split("x"))


def size(text: str) -> int:
    """Bytes, less than 2^64: `8`, `64K`, `1.5M`, `1 G`, `1e6`, `2GiB`, `100kB`; fractions of a byte are dropped.

    K, M, G and T are powers of 1024, as in nccl-tests; so are KiB, MiB, ..; kB (or KB), MB, .. are powers of 1000.
    """
    match = _SIZE.fullmatch(text.strip())
    found = 1 << 64
    if match:
        base = 1000 if (match[3] or "").upper() == "B" else 1024
        found = int(Fraction(match[1]) * base ** " KMGT".index((match[2] or " ").upper()))
    if found >= 1 << 64:
        raise ValueError("bytes such as 8, 64K or 1M (powers of 1024), 64KiB, or 1MB (powers of 1000)")
    return found


@lru_cache(maxsize=1024)  # a topology file repeats the same few rates thousands of times
def rate(text: str) -> Fraction:
    """Bytes per second, exact and positive: `25e9`, `12.5e9`, `1/3`, `25GB/s`, `200Gbit/s` (1000), `1GiB/s` (1024)."""
    match = _RATE.fullmatch(text)
    if match and Fraction(match[1]) > 0 and (match[2] or not match[3]):
        base = 1024 if match[3] else 1000
        bits = 8 if match[4] == "b" or match[4].lower() == "bit" else 1
        return Fraction(match[1]) * int(base ** " KMGT".index((match[2] or " ").upper())) / bits
    if _DECIMAL.fullmatch(text) or _RATIO.fullmatch(text):
        try:
            value = Fraction(text)
        except ZeroDivisionError:
            value = Fraction(0)
        if value > 0:
            return value
    raise ValueError("a positive number of bytes/s such as 25e9 or 1/3, or 25GB/s or 200Gbit/s")


def bit_rate(text: str) -> Fraction:
    """A line rate in bits, as usual for networks; returns bytes/s, exact and positive: `200mbit`, `1.5gbit`."""
    match = _BIT_RATE.fullmatch(text)
    if match and Fraction(match[1]) > 0:
        return Fraction(match[1]) * {"k": 10**3, "m": 10**6, "g": 10**9}[match[2]] / 8
    raise ValueError("a positive number of kbit, mbit or gbit, such as 200mbit")


def rates(text: str) -> tuple[Fraction, ...]:
    """One rate, or one per dimension of a grid: `50e9` or `50e9x100e9`."""
    return tuple(rate(part) for part in text.split("x"))


def ratio(text: str) -> Fraction:
    """A positive number, exact: `4`, `1.5` or `7/2`."""
    try:
        return rate(text)
    except ValueError:
        raise ValueError("a positive number such as 4 or 7/2") from None


def seconds(text: str) -> float:
    """Seconds, not negative: `1e-6`, `1us`."""
    if _DURATION.fullmatch(text):
        return duration(text)
    if not _DECIMAL.fullmatch(text):
        raise ValueError("a number of seconds such as 1e-6, or 1us")
    return float(text)


def duration(text: str) -> float:
    """A time with its unit, in seconds, not negative: `2s`, `1.5ms`, `20us`, `700ns`."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError("a time such as 2s, 1.5ms or 20us")
    return float(Fraction(match[1]) / {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1}[match[2]])


def share(text: str) -> float:
    """A part of a whole: '1%' or '0.01'. ValueError says what would be valid."""
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        value = float(number) / percent
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ValueError("a share such as 1% or 0.01, at least 0 and less than 1")
    return value


def flag(text: str) -> bool:
    """`on` or `off`."""
    if text not in ("on", "off"):
        raise ValueError("on or off")
    return text == "on"

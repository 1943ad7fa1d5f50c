"""Numbers with their units, as people read them."""

from __future__ import annotations

from fractions import Fraction


def rate(bandwidth: Fraction | float) -> str:
    """Bytes/s for people: `50 GB/s`; powers of 1000."""
    for unit, size in (("TB/s", 10**12), ("GB/s", 10**9), ("MB/s", 10**6), ("kB/s", 10**3)):
        if bandwidth >= size:
            return f"{float(bandwidth / size):.4g} {unit}"
    return f"{float(bandwidth):.4g} B/s"


def time(seconds: float) -> str:
    """Seconds for people: `0.7 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} us"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 rank`, `8 ranks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

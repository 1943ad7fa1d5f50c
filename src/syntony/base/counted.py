"""Numbers of things, as sentences say them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def counted(number: int | Fraction, noun: str) -> str:
    """ "1 chunk", "2 chunks", "3/2 chunks": the plural is the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_ranges(ranks: Sequence[int], most: int = 8) -> str:
    """ "rank 3", "ranks 0..3, 7"; ascending ranks, at most so many ranges of them."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    words = [str(low) if low == high else f"{low}..{high}" for low, high in ranges[:most]]
    more = f", .. ({len(ranks)} of them)" if len(ranges) > most else ""
    return f"ranks {', '.join(words)}{more}"

"""Numbers with units, counts, ranges of ranks and guesses at names, for use in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache


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


@lru_cache(maxsize=1)
def installed_version() -> str:
    """The version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("syntony")
    except PackageNotFoundError:  # run from the source folder
        return "unknown"


def counted(number: int | Fraction, noun: str) -> str:
    """ "1 chunk", "2 chunks", "3/2 chunks": the plural is the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_ranges(ranks: Sequence[int], most: int = 8) -> str:
    """ "rank 3", "ranks 0..3, 7"; ascending ranks, at most `most` ranges."""
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


def bar(share: float, width: int = 20) -> str:
    """ "[###############.....]": a share from 0 to 1; only 1 is drawn full."""
    filled = width if share >= 1.0 else min(width - 1, int(share * width + 0.5))
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ " (did you mean ring?)", or "" if no known name is similar or contains the word; case is ignored."""
    names = {name.lower(): name for name in known}
    part = [name for name in names if len(word) > 2 and word.lower() in re.split(r"[^a-z0-9]+", name)]
    close = get_close_matches(word.lower(), names, n=1) or part
    return f" (did you mean {names[close[0]]}?)" if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """ "no algorithm 'rign' (did you mean ring?); there are ring, tree": for a name that is not in `known`."""
    names = list(known)
    return f"no {what} {word!r}{did_you_mean(word, names)}; there are {', '.join(names)}"


def bytes_of(size: int) -> str:
    """ "128 KiB", "1000 bytes": exactly, in the largest unit that divides it."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return counted(size, "byte")


def rounded_size(size: float) -> str:
    """ "12 MB", "1.235 GB": four digits at most; powers of 1000."""
    return rate(size).removesuffix("/s")

"""Checks a rank by itself: its memory keeps what is written to it, and how fast it copies and computes.

write a pattern ─► read it back ─► the same, inverted: every bit has been 0 and 1
copy, compute, window after window: the median window counts, so that a rank that is stopped now and then stands out
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PIECE = 1 << 20  # words compared at a time
_COPIED = 1 << 22  # bytes: more than the caches of one core hold
_COMPUTED = 1 << 10  # numbers: few enough to stay in cache
_ROUNDS, _WINDOWS, _WINDOW = 3, 5, 0.05  # seconds
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Alone:
    """wrong: words that came back changed; copying: bytes/s; computing: multiplications/s of one thread."""

    wrong: int
    copying: float
    computing: float


def examined(memory: int) -> Alone:
    """Examines this rank, with this many bytes of memory."""
    source, target = np.zeros(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    factor, product = np.full(_COMPUTED, 1.0), np.full(_COMPUTED, 1.0)
    return Alone(
        wrong=changed(np.empty(max(1, memory // 8), np.uint64)),
        copying=_rate(lambda: np.copyto(target, source), _COPIED),
        computing=_rate(lambda: np.multiply(factor, product, out=product), _COMPUTED),
    )


def changed(words: NDArray[np.uint64]) -> int:
    """Counts the words of this memory that do not keep what is written to them."""
    wrong = 0
    for inverted in (np.uint64(0), ~np.uint64(0)):
        for begin in range(0, len(words), _PIECE):
            piece = words[begin : begin + _PIECE]
            piece[:] = _pattern(begin, len(piece), inverted)
        for begin in range(0, len(words), _PIECE):
            piece = words[begin : begin + _PIECE]
            wrong += int(np.count_nonzero(piece != _pattern(begin, len(piece), inverted)))
    return wrong


def _pattern(begin: int, count: int, inverted: np.uint64) -> NDArray[np.uint64]:
    """A different word at every address, so that a misplaced word is detected."""
    return (np.arange(begin, begin + count, dtype=np.uint64) * _ODD) ^ inverted


def _rate(work: Callable[[], object], amount: int) -> float:
    def window() -> float:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() < begin + _WINDOW:
            for _ in range(16):
                work()
            done += 16
        return done * amount / (time.perf_counter() - begin)

    return max(float(np.median([window() for _ in range(_WINDOWS)])) for _ in range(_ROUNDS))

"""Ragged columns: pieces of unequal length, one after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.synth.traffic.messages import Column


def offsets(lengths: ArrayLike) -> Column:
    """Where each piece begins, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def ranges(begin: NDArray[np.signedinteger], count: NDArray[np.signedinteger]) -> Column:
    """begin[0], begin[0]+1, .. (count[0] of them), begin[1], .."""
    total: Column = np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    return total

"""Text that exists on every machine with Python: the sources of the standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def standard_library(limit: int = 4 << 20) -> Bytes:
    """The modules of the standard library, one after the other in the order of their names, up to `limit` bytes."""
    folder = Path(sysconfig.get_path("stdlib"))
    pieces: list[bytes] = []
    for path in sorted(folder.glob("*.py")):
        pieces.append(path.read_bytes())
        if sum(map(len, pieces)) >= limit:
            break
    return np.frombuffer(b"\n".join(pieces)[:limit], np.uint8)


def batch(text: Bytes, step: int, rank: int, rows: int, context: int) -> tuple[Bytes, Bytes]:
    """(rows, context) bytes and the bytes that follow each of them; the same for the same step and rank, always."""
    starts = np.random.default_rng((step, rank)).integers(0, text.size - context - 1, rows)
    window = starts[:, None] + np.arange(context)
    return text[window], text[window + 1]

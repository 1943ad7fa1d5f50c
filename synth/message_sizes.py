"""How many bytes the messages of a Program have, slice by slice, once the size of the collective is known.

chunk of 5 slices     |====|====|====|====|==|
chunk of 2 slices     |====|=|
message of both        8    5    4    4    2         slice 0, 1, ..
boundaries                 1    2         4    5     between two of them, every message is as long as the one before
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from synth.checker.resolved import Resolved
from synth.collective import block_count
from synth.program import ONE_SIDED, RECEIVES, SENDS, Opcode

_SIGNALS = (Opcode.signal, Opcode.wait)


class MessageSizes:
    """Of the Program behind `code`, for a collective of `size` bytes whose messages have at most `slice_bytes`.

    slice       bytes of a full slice of one chunk
    slices      int64 (ranks,): how often each rank runs its lanes
    boundaries  ascending: from one to before the next, no message's size changes from slice to slice
    """

    def __init__(self, code: Resolved, size: int, slice_bytes: int) -> None:
        program = code.program
        talks = RECEIVES[code.opcode] | SENDS[code.opcode] | ONE_SIDED[code.opcode]
        signals = np.isin(code.opcode, _SIGNALS)
        self.slice = max(1, slice_bytes // int(code.count[talks].max(initial=1)))
        chunks = _chunk_bytes(code, size)
        firsts = [floor(chunk / self.slice) for chunk in chunks]
        lasts = [ceil(chunk / self.slice) for chunk in chunks]
        self.boundaries: list[int] = sorted({*firsts, *lasts})
        self.slices: NDArray[np.int64] = np.zeros(program.ranks, np.int64)
        np.maximum.at(self.slices, program.slots[:, 0], np.asarray(lasts, np.int64)[code.slot_chunk])
        # Signals carry no size, so all ranks that use them must count slices alike.
        self.slices[code.agent[signals]] = max(lasts)

        shape = np.where((code.opcode == Opcode.send) | (code.dst < 0), code.src, code.dst)
        self._bytes: list[tuple[float, ...]] = [()] * len(shape)
        self._full: list[int] = [0] * len(shape)
        floats = [float(chunk) for chunk in chunks]
        for row in np.flatnonzero(talks & ~signals).tolist():
            held = code.slot_chunk[shape[row] : shape[row] + code.count[row]].tolist()
            self._bytes[row] = tuple(floats[chunk] for chunk in held)
            self._full[row] = min(firsts[chunk] for chunk in held)

    def of(self, row: int, slice_: int) -> float:
        """Bytes of the message of instruction `row` in the slice; 0 where it has none."""
        if slice_ < self._full[row]:
            return float(self.slice * len(self._bytes[row]))
        before = slice_ * self.slice
        return sum(min(max(chunk - before, 0.0), self.slice) for chunk in self._bytes[row])

    def total(self, row: int) -> float:
        """Bytes of the messages of instruction `row` in all slices."""
        return sum(self._bytes[row])


def _chunk_bytes(code: Resolved, size: int) -> list[Fraction]:
    """Per chunk: its weight's share of a block; all blocks are equal."""
    program = code.program
    blocks = block_count(program.collective, program.ranks)
    block = Fraction(size * (program.ranks if program.collective == "all_to_all" else 1), blocks)
    weights = np.bincount(program.chunks[:, 0], program.chunks[:, 1]).astype(np.int64).tolist()
    return [block * weight / weights[number] for number, weight in program.chunks.tolist()]

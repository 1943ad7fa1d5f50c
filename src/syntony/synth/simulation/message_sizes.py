"""The bytes of a Program's messages, slice by slice, for a given size of the collective.

heavy chunk           |====|====|====|====|==|
chunk of half of it   |==|==|==|==|=|
message of both        6    6    6    6    3         slice 0, 1, ..

Slices have the same length as in csrc/core/program/prepared_program.hpp, but counted in bytes.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import first_uses
from syntony.synth.model.collective import block_count
from syntony.synth.model.instructions import ONE_SIDED, RECEIVES, SENDS, Opcode
from syntony.synth.model.references import References

_SHORTEST_SLICE = 16  # of them are as long as the longest


class MessageSizes:
    """Sizes of the Program behind `code`, for a collective of `size` bytes and messages of at most `slice_bytes`.

    slices        int64 (ranks,): how often each rank runs its lanes
    signals       bool (I,): instructions whose message counts although it is empty
    chunk_bytes   float64 (K,): bytes of every chunk,
    slice_bytes   float64 (K,): and of a full slice of it
    chunk_offset  int64 (I+1,): instruction i moves chunk[chunk_offset[i]:chunk_offset[i+1]]
    chunk         int64
    """

    def __init__(self, code: References, size: int, slice_bytes: int) -> None:
        program = code.program
        self.signals: NDArray[np.bool_] = np.isin(code.opcode, (Opcode.signal, Opcode.wait))
        talks = RECEIVES[code.opcode] | SENDS[code.opcode] | ONE_SIDED[code.opcode]
        longest = max(1, slice_bytes // int(code.count[talks].max(initial=1)))
        exact, kind = _chunk_bytes(code, size)
        weight = program.chunks[:, 1].astype(np.int64)
        heaviest = int(weight.max())
        exactly = weight if longest * heaviest <= np.iinfo(np.int64).max else weight.astype(object)
        share = (longest * exactly // heaviest).astype(np.int64) + 2
        full = np.minimum(longest, np.maximum(share, longest // _SHORTEST_SLICE))
        self.chunk_bytes: NDArray[np.float64] = np.asarray([float(chunk) for chunk in exact])[kind]
        self.slice_bytes: NDArray[np.float64] = full.astype(np.float64)
        each = full[first_uses(kind, len(exact))].tolist()
        lasts = np.asarray([ceil(chunk / most) for chunk, most in zip(exact, each, strict=True)], np.int64)[kind]
        self.slices: NDArray[np.int64] = np.zeros(program.ranks, np.int64)
        np.maximum.at(self.slices, program.slots[:, 0], lasts[code.slot_chunk])
        # Signals have no size, so all ranks that use them must count slices alike.
        self.slices[code.agent[self.signals]] = lasts.max(initial=0)

        shape = np.where((code.opcode == Opcode.send) | (code.dst < 0), code.src, code.dst)
        count = np.where(talks & ~self.signals, code.count, 0)
        self.chunk_offset: NDArray[np.int64] = np.concatenate(([0], np.cumsum(count)))
        within = np.arange(int(self.chunk_offset[-1])) - np.repeat(self.chunk_offset[:-1], count)
        self.chunk: NDArray[np.int64] = code.slot_chunk[np.repeat(shape, count) + within]

    def total(self) -> NDArray[np.float64]:
        """Bytes of the messages of every instruction, in all slices."""
        return self._of_instructions(self.chunk_bytes)

    def longest(self) -> float:
        """Bytes of the longest message."""
        return float(self._of_instructions(np.minimum(self.chunk_bytes, self.slice_bytes)).max(initial=0))

    def _of_instructions(self, of_chunk: NDArray[np.float64]) -> NDArray[np.float64]:
        before = np.concatenate(([0.0], np.cumsum(of_chunk[self.chunk])))
        return before[self.chunk_offset[1:]] - before[self.chunk_offset[:-1]]


def _chunk_bytes(code: References, size: int) -> tuple[list[Fraction], NDArray[np.int64]]:
    """Exact bytes of chunks: the distinct amounts, and the index of each chunk's amount.

    A chunk is its weight's share of a block; all blocks are equal.
    """
    program = code.program
    blocks = block_count(program.collective, program.ranks)
    block = Fraction(size * (program.ranks if program.collective == "all_to_all" else 1), blocks)
    number, weight = program.chunks.T.astype(np.int64)
    of_block = np.bincount(number, weight).astype(np.int64)[number]
    shares, kind = np.unique(np.stack([weight, of_block]), axis=1, return_inverse=True)
    return [block * mine / whole for mine, whole in shares.T.tolist()], kind.reshape(-1)

"""What a generated kernel is launched with: sizes, addresses, memory of its own. The same on a GPU and in the tests.

A Program's slots become one table of addresses, its chunks one of sizes, both computed here; the kernel only looks them
up. `Room` is the memory that a kernel needs beside the user's: scratch slots, FIFOs, flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda.source import Source
from syntony.synth.model.instructions import Space
from syntony.synth.model.program import Program

LAUNCH = np.dtype(
    [(name, np.uint64) for name in ("slots", "chunks", "fifos", "flags", "trouble", "patience")]
    + [(name, np.int64) for name in ("slices", "piece_bytes", "message_bytes")]
    + [(name, np.int32) for name in ("stripes", "first_lane", "lanes", "_padding")]
)
"""`struct Launch` of csrc/cuda/device/lane.hpp."""

_LINE = 128  # bytes between flags
_HEADER = 2  # lines before a rank's first flag
_ALIGNED = 256
_LIGHTEST = 16  # a slice of the lightest chunk is at least this part of the heaviest's

Addresses = Sequence[tuple[int, int]]
"""Per block of the collective: the addresses of its input and its output on a rank; 0 where it has none there."""


@dataclass(frozen=True)
class Sizes:
    """A Program's chunks, for blocks of given sizes. Bytes."""

    chunks: NDArray[np.int64]
    """(chunks, 3): offset in the block, size, slice."""
    slices: int
    piece_bytes: int
    """The largest slice, with room to lie in a message as it lies in its block."""

    @staticmethod
    def of(program: Program, elements: Sequence[int], itemsize: int, slice_bytes: int) -> Sizes:
        """`elements` of each block. Slices of the heaviest chunk have at most about `slice_bytes`; lighter chunks have
        shorter ones, so that all end together."""
        block, weight = program.chunks[:, 0], program.chunks[:, 1].astype(np.int64)
        if len(elements) <= int(block.max(initial=-1)):
            raise UsageError(
                f"{program.collective} has blocks up to number {block.max()}; sizes came for {len(elements)}"
            )
        count = np.array(elements, np.int64)[block]
        totals = np.zeros(len(elements), np.int64)
        np.add.at(totals, block, weight)
        after = np.zeros(len(block), np.int64)
        for chunk, (of, share) in enumerate(zip(block.tolist(), weight.tolist(), strict=True)):
            after[chunk] = share + (after[chunk - 1] if chunk and block[chunk - 1] == of else 0)
        if len(block) and int(count.max()) * int(after.max()) > np.iinfo(np.int64).max:  # many elements, heavy chunks
            count, after = count.astype(object), after.astype(object)
        first = (count * (after - weight) // totals[block]).astype(np.int64)
        size = ((count * after // totals[block]).astype(np.int64) - first) * itemsize
        heaviest = int(weight.max(initial=1))
        share = np.maximum(slice_bytes * weight // heaviest, slice_bytes // _LIGHTEST)
        # Whole vectors, so that every slice lies in its vectors as the first one does.
        piece = np.maximum(-(-share // 128), 1) * 128
        slices = int((-(-size // piece)).max(initial=0))
        chunks = np.stack([first * itemsize, size, piece], 1)
        return Sizes(chunks, slices, int(np.minimum(piece, -(-size // 16) * 16).max(initial=0)) + 16)


@dataclass(frozen=True)
class Room:
    """Bytes of memory of its own that each rank brings to a launch; zeroed once, before the first."""

    flags: tuple[int, ...]
    fifos: tuple[int, ...]
    scratch: tuple[int, ...]

    @staticmethod
    def of(source: Source, sizes: Sizes, stripes: int) -> Room:
        """What a kernel needs for these sizes on so many stripes."""
        message = sizes.piece_bytes * source.message_slots
        scratch = [0] * source.program.ranks
        for rank, space, chunk in source.program.slots.tolist():
            if space == Space.scratch:
                scratch[rank] += _scratch_bytes(sizes, chunk)
        return Room(
            tuple((_HEADER + stripes * flags) * _LINE for flags in source.flags),
            tuple(stripes * connections * source.fifo_depth * message for connections in source.connections),
            tuple(scratch),
        )


def _scratch_bytes(sizes: Sizes, chunk: int) -> int:
    return -(-(int(sizes.chunks[chunk, 1]) + 16) // _ALIGNED) * _ALIGNED


def slot_addresses(
    program: Program, sizes: Sizes, blocks: Sequence[Addresses], scratch: Sequence[int]
) -> NDArray[np.uint64]:
    """(slots,) where each slot lies. `blocks` and `scratch` (the address of its memory) are per rank."""
    addresses = np.zeros(len(program.slots), np.uint64)
    room = list(scratch)
    for row, (rank, space, chunk) in enumerate(program.slots.tolist()):
        offset = int(sizes.chunks[chunk, 0])
        if space == Space.scratch:
            addresses[row] = room[rank] + offset % 16  # in its vectors as the chunk lies in its block
            room[rank] += _scratch_bytes(sizes, chunk)
        else:
            addresses[row] = blocks[rank][int(program.chunks[chunk, 0])][space] + offset
    return addresses


def argument(
    source: Source,
    sizes: Sizes,
    *,
    slots: int,
    chunks: int,
    fifos: int,
    flags: int,
    trouble: int,
    seconds: float,
    stripes: int,
    ranks: range,
) -> NDArray[np.void]:
    """The kernel's argument, one row: addresses of the tables, and the `ranks` whose lanes this launch runs."""
    first = sum(source.lanes[: ranks.start])
    lanes = sum(source.lanes[ranks.start : ranks.stop])
    message = sizes.piece_bytes * source.message_slots
    row = (
        slots, chunks, fifos, flags, trouble, int(seconds * 1e9),
        sizes.slices, sizes.piece_bytes, message, stripes, first, lanes, 0,
    )  # fmt: skip
    return np.array(row, LAUNCH)

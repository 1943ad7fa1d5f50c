"""Collective: what must hold before and after, not how it is achieved.

A collective acts on *blocks* (pieces of the user's buffers); a block is cut into *chunks*, the units that a schedule
moves. There are eight kinds, with these blocks, ranks that start with a block, and ranks that must end with it:

    kind            blocks                starts with (pre)     ends with (post)      sums
    all_reduce      1                     every rank            every rank            yes
    all_gather      rank r owns block r   r                     every rank            no
    reduce_scatter  rank r owns block r   every rank            r                     yes
    all_to_all      block s*n + d         s                     d                     no
    broadcast       1                     root                  every rank            no
    reduce          1                     every rank            root                  yes
    gather          rank r owns block r   r                     root                  no
    scatter         rank r owns block r   root                  r                     no

A rank "starts with" a summed block if it holds its own contribution, and "ends with" it if it holds the whole sum.

Ranks here are ranks of the *collective*, 0..ranks-1; rank i lives on the topology's rank `members[i]`.

Sizes. The *size* of a collective is the one of nccl-tests: the bytes of the larger of a rank's two buffers. Chunk
weights are integers over one common denominator, so a chunk is `weight * unit` of the size; blocks with unequal total
weight have unequal nominal sizes. (A Program uses only the shares within each block: sizes are given at launch.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.base.command import UserError
from syntony.base.wording import counted, unknown

KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)
_COMBINING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_ONE_BLOCK = frozenset({"all_reduce", "broadcast", "reduce"})
_DUALS = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "gather": "scatter",
    "scatter": "gather",
}


MOST_WEIGHT = 2**31 - 1
"""The greatest weight of a chunk, which has 32 bits."""


class CollectiveError(UserError):
    """An invalid collective: an unknown kind, a rank that does not exist, a malformed chunk table."""


def block_count(kind: str, ranks: int) -> int:
    """How many blocks the kind has on `ranks` ranks."""
    if kind in _ONE_BLOCK:
        return 1
    return ranks * ranks if kind == "all_to_all" else ranks


def int_column(values: ArrayLike, dtype: type[np.signedinteger] = np.int32) -> NDArray[np.signedinteger]:
    """A read-only one-dimensional column, for use in frozen dataclasses."""
    column = np.array(values, dtype=dtype).reshape(-1)
    column.setflags(write=False)
    return column


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """The chunks of a collective, two int32 columns of equal length.

    block[k]   the block that chunk k is a share of; ascending, every block has at least one chunk
    weight[k]  its size in units of the common denominator, at least 1
    """

    block: NDArray[np.signedinteger]
    weight: NDArray[np.signedinteger]

    def __post_init__(self) -> None:
        object.__setattr__(self, "block", int_column(self.block))
        object.__setattr__(self, "weight", int_column(self.weight))
        if self.block.shape != self.weight.shape:
            raise CollectiveError(
                f"the chunk table has {counted(len(self.block), 'block')} and {counted(len(self.weight), 'weight')}"
            )
        if np.any(self.weight < 1):
            chunk = int(np.argmax(self.weight < 1))
            raise CollectiveError(f"chunk {chunk} has weight {self.weight[chunk]}; a weight is at least 1")
        jumps = np.diff(self.block, prepend=-1)
        if np.any((jumps != 0) & (jumps != 1)):
            chunk = int(np.argmax((jumps != 0) & (jumps != 1)))
            raise CollectiveError(
                f"chunk {chunk} is of block {self.block[chunk]}; chunks go block by block: 0, .., 0, 1, .., 1, 2, .."
            )

    def __len__(self) -> int:
        return len(self.block)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkTable):
            return NotImplemented
        return np.array_equal(self.block, other.block) and np.array_equal(self.weight, other.weight)

    def __hash__(self) -> int:
        return hash((self.block.tobytes(), self.weight.tobytes()))


@dataclass(frozen=True)
class Collective:
    """Kind, ranks, root, members and chunks; see the module docstring. Build it with `Collective.make`."""

    kind: str
    ranks: int
    chunks: ChunkTable
    root: int = 0
    members: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CollectiveError(unknown("collective", self.kind, KINDS))
        if self.ranks < 1:
            raise CollectiveError(f"a collective has at least 1 rank, not {self.ranks}")
        if not self.members:
            object.__setattr__(self, "members", tuple(range(self.ranks)))
        if len(self.members) != self.ranks or len(set(self.members)) != self.ranks or min(self.members) < 0:
            raise CollectiveError(f"members must be {self.ranks} different topology ranks, not {list(self.members)}")
        if not 0 <= self.root < self.ranks:
            raise CollectiveError(f"root {self.root} is not a rank of this collective; ranks are 0..{self.ranks - 1}")
        if self.root and self.kind not in _ROOTED:
            raise CollectiveError(f"{self.kind} has no root, yet root is {self.root}")
        blocks = int(self.chunks.block[-1]) + 1 if len(self.chunks) else 0
        if blocks != self.blocks:
            raise CollectiveError(
                f"{self.kind} on {counted(self.ranks, 'rank')} has {counted(self.blocks, 'block')}, "
                f"the chunk table has {blocks}"
            )

    @staticmethod
    def make(
        kind: str,
        ranks: int | None = None,
        chunks_per_block: int = 1,
        root: int = 0,
        members: Sequence[int] | None = None,
        weights: Sequence[int] | None = None,
        block_sizes: Sequence[int] | None = None,
    ) -> Collective:
        """A collective over `ranks` ranks, or over `members` of a topology (then `ranks` may be left out).

        weights      the weights of one block's chunks, for uneven cuts (instead of chunks_per_block)
        block_sizes  relative sizes of the blocks, for uneven blocks (default: all equal)
        """
        if kind not in KINDS:
            raise CollectiveError(unknown("collective", kind, KINDS))
        if ranks is None:
            if members is None:
                raise CollectiveError("a collective needs its ranks or its members")
            ranks = len(members)
        if chunks_per_block < 1:
            raise CollectiveError(f"a block has at least 1 chunk, not {chunks_per_block}")
        pattern = np.asarray(weights if weights is not None else [1] * chunks_per_block, dtype=np.int32)
        blocks = block_count(kind, ranks)
        sizes = np.ones(blocks, np.int32) if block_sizes is None else np.asarray(block_sizes, dtype=np.int32)
        if len(sizes) != blocks:
            raise CollectiveError(
                f"{kind} on {counted(ranks, 'rank')} has {counted(blocks, 'block')}, not {len(sizes)} block sizes"
            )
        table = ChunkTable(np.repeat(np.arange(blocks), len(pattern)), np.outer(sizes, pattern))
        return Collective(kind, ranks, table, root, tuple(members) if members is not None else ())

    @property
    def combining(self) -> bool:
        """Whether contributions are summed."""
        return self.kind in _COMBINING

    @property
    def rooted(self) -> bool:
        """Whether the kind has a root."""
        return self.kind in _ROOTED

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return block_count(self.kind, self.ranks)

    @cached_property
    def unit(self) -> Fraction:
        """The share of the collective's size that corresponds to a chunk weight of 1."""
        total = int(self.chunks.weight.sum(dtype=np.int64))
        return Fraction(self.ranks if self.kind == "all_to_all" else 1, total)

    def share(self, chunk: int) -> Fraction:
        """The chunk's share of the collective's size."""
        return int(self.chunks.weight[chunk]) * self.unit

    def bytes_of_chunks(self, size: int) -> NDArray[np.float64]:
        """The bytes of each chunk if the collective's size is `size`."""
        unit = size * self.unit
        return self.chunks.weight.astype(np.float64) * float(unit.numerator) / float(unit.denominator)

    def pre(self, chunk: int) -> frozenset[int]:
        """The ranks that start with the chunk (or, if it is summed, with their contribution to it)."""
        block = int(self.chunks.block[chunk])
        match self.kind:
            case "all_gather" | "gather":
                return frozenset({block})
            case "all_to_all":
                return frozenset({block // self.ranks})
            case "broadcast" | "scatter":
                return frozenset({self.root})
            case _:
                return frozenset(range(self.ranks))

    def post(self, chunk: int) -> frozenset[int]:
        """The ranks that must end with the chunk (or, if it is summed, with its whole sum)."""
        block = int(self.chunks.block[chunk])
        match self.kind:
            case "reduce_scatter" | "scatter":
                return frozenset({block})
            case "all_to_all":
                return frozenset({block % self.ranks})
            case "reduce" | "gather":
                return frozenset({self.root})
            case _:
                return frozenset(range(self.ranks))

    @property
    def bus_factor(self) -> Fraction:
        """busbw = algbw * bus_factor, as nccl-tests define it."""
        n = self.ranks
        match self.kind:
            case "all_reduce":
                return Fraction(2 * (n - 1), n)
            case "broadcast" | "reduce":
                return Fraction(1)
            case _:
                return Fraction(n - 1, n)

    def dual(self) -> Collective:
        """The collective whose schedules, run backwards on the reversed links, are schedules of this collective.

        Copies run backwards become sums: a tree that spreads a chunk from its owner, reversed, sums it into its owner
        (Cai et al., PPoPP'21, section 3.5). Chunks, root and members stay as they are.
        """
        if self.kind not in _DUALS:
            raise CollectiveError(f"{self.kind} has no dual; it is its own reversal or a composition")
        return replace(self, kind=_DUALS[self.kind])

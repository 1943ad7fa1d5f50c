"""What each benchmark moves: counts, buffers and bus-bandwidth factor, as nccl-tests defines them.

A test is asked for `size` bytes: the larger of the buffers that a rank holds. Collectives with a block per rank round
the block down to 16 bytes, so every block is aligned and all are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

BLOCK_ALIGNMENT = 16  # bytes


@dataclass(frozen=True)
class Shape:
    """One collective, as a benchmark sees it.

    `sends_blocks`, `receives_blocks`: that side of a rank holds one block per rank instead of a single block.
    `in_place`: how the call looks when both buffers are one: "same" memory, the "own block" of the larger one, or none.
    """

    name: str
    reduces: bool = False
    rooted: bool = False
    sends_blocks: bool = False
    receives_blocks: bool = False
    in_place: str | None = "same"

    def block(self, size: int, ranks: int, item_bytes: int) -> int:
        """Elements of one block when the larger buffer may take `size` bytes."""
        elements = size // item_bytes
        if not (self.sends_blocks or self.receives_blocks):
            return elements
        per_rank = elements // ranks
        return per_rank - per_rank % max(1, BLOCK_ALIGNMENT // item_bytes)

    def counts(self, block: int, ranks: int) -> tuple[int, int]:
        """Elements in a rank's send and receive buffer."""
        return block * (ranks if self.sends_blocks else 1), block * (ranks if self.receives_blocks else 1)

    def bus_factor(self, ranks: int) -> Fraction:
        """busbw / algbw: the share of the size that the busiest wire must carry."""
        if self.name == "all_reduce":
            return Fraction(2 * (ranks - 1), ranks)
        if self.sends_blocks or self.receives_blocks:
            return Fraction(ranks - 1, ranks)
        return Fraction(1)


_SHAPES = (
    Shape("all_reduce", reduces=True),
    Shape("all_gather", receives_blocks=True, in_place="own block"),
    Shape("reduce_scatter", reduces=True, sends_blocks=True, in_place="own block"),
    Shape("all_to_all", sends_blocks=True, receives_blocks=True, in_place=None),
    Shape("broadcast", rooted=True),
    Shape("reduce", reduces=True, rooted=True),
    Shape("gather", rooted=True, receives_blocks=True, in_place="own block"),
    Shape("scatter", rooted=True, sends_blocks=True, in_place="own block"),
    Shape("sendrecv", in_place=None),
)
SHAPES: Mapping[str, Shape] = MappingProxyType({shape.name: shape for shape in _SHAPES})

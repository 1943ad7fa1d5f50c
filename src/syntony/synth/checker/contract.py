"""What each collective requires, derived from its definition alone (independently of all other packages).

blocks        one block of data, or one per rank, or one per (source, destination) pair
input(rank)   the blocks that the rank's input holds, in order
output(rank)  the blocks that the rank's output must hold afterwards, in order

sources(block), targets(block) give the same by block: the ranks whose input holds it, those whose output must.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.signedinteger]
Blocks = TypeVar("Blocks", int, Integers)


@dataclass(frozen=True)
class Contract:
    """The requirements of one collective on `ranks` ranks."""

    kind: str
    ranks: int
    root: int = 0

    @property
    def sums(self) -> bool:
        """Whether outputs are sums over all ranks."""
        return self.kind in ("all_reduce", "reduce_scatter", "reduce")

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        if self.kind in ("all_reduce", "broadcast", "reduce"):
            return 1
        return self.ranks**2 if self.kind == "all_to_all" else self.ranks

    def input(self, rank: int) -> list[int]:
        """Blocks that the rank starts with."""
        match self.kind:
            case "all_reduce" | "reduce":
                return [0]
            case "all_gather" | "gather":
                return [rank]
            case "reduce_scatter":
                return list(range(self.ranks))
            case "all_to_all":
                return [rank * self.ranks + destination for destination in range(self.ranks)]
            case "broadcast" | "scatter":
                return list(range(self.blocks)) if rank == self.root else []
            case _:
                raise ValueError(f"'{self.kind}' is not a collective")

    def output(self, rank: int) -> list[int]:
        """Blocks that the rank must end with."""
        match self.kind:
            case "all_reduce" | "broadcast":
                return [0]
            case "all_gather":
                return list(range(self.ranks))
            case "reduce_scatter" | "scatter":
                return [rank]
            case "all_to_all":
                return [source * self.ranks + rank for source in range(self.ranks)]
            case "reduce" | "gather":
                return list(range(self.blocks)) if rank == self.root else []
            case _:
                raise ValueError(f"'{self.kind}' is not a collective")

    def sources(self, block: int) -> range:
        """Ranks that start with the block."""
        return range(*self.source_span(block))

    def targets(self, block: int) -> range:
        """Ranks that must end with the block."""
        return range(*self.target_span(block))

    def source_span(self, block: Blocks) -> tuple[Blocks, Blocks]:
        """The first of the ranks that start with the block, and one past the last; for one block or many."""
        match self.kind:
            case "all_reduce" | "reduce" | "reduce_scatter":
                return block * 0, block * 0 + self.ranks
            case "all_gather" | "gather":
                return block, block + 1
            case "all_to_all":
                return block // self.ranks, block // self.ranks + 1
            case _:
                return block * 0 + self.root, block * 0 + self.root + 1

    def target_span(self, block: Blocks) -> tuple[Blocks, Blocks]:
        """The first of the ranks that must end with the block, and one past the last; for one block or many."""
        match self.kind:
            case "all_reduce" | "broadcast" | "all_gather":
                return block * 0, block * 0 + self.ranks
            case "reduce_scatter" | "scatter":
                return block, block + 1
            case "all_to_all":
                return block % self.ranks, block % self.ranks + 1
            case _:
                return block * 0 + self.root, block * 0 + self.root + 1

    def moved(self, ranks: Integers) -> Integers | None:
        """Where each block goes if rank r becomes ranks[r]; None if the root changes."""
        if self.kind in ("broadcast", "reduce", "gather", "scatter") and ranks[self.root] != self.root:
            return None
        if self.blocks == 1:
            return np.zeros(1, np.int64)
        if self.kind == "all_to_all":
            return (ranks[:, None] * self.ranks + ranks).reshape(-1)
        return ranks

    def contributors(self, block: int) -> frozenset[int]:
        """The ranks whose data is in the final block."""
        return frozenset(self.sources(block))

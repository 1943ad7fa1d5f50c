"""What each collective demands, derived from its definition alone (the checker believes no other room).

blocks        one block of data, or one per rank, or one per (source, destination) pair
input(rank)   the blocks that the rank's input holds, in order
output(rank)  the blocks that the rank's output must hold afterwards, in order

sources(block), targets(block) say the same by block: the ranks whose input holds it, those whose output must.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Contract:
    """The demand of one collective on `ranks` ranks."""

    kind: str
    ranks: int
    root: int = 0

    @property
    def sums(self) -> bool:
        """Whether outputs are sums over all ranks."""
        return self.kind in ("all_reduce", "reduce_scatter", "reduce")

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
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
        match self.kind:
            case "all_reduce" | "reduce" | "reduce_scatter":
                return range(self.ranks)
            case "all_gather" | "gather":
                return range(block, block + 1)
            case "all_to_all":
                return range(block // self.ranks, block // self.ranks + 1)
            case _:
                return range(self.root, self.root + 1)

    def targets(self, block: int) -> range:
        """Ranks that must end with the block."""
        match self.kind:
            case "all_reduce" | "broadcast" | "all_gather":
                return range(self.ranks)
            case "reduce_scatter" | "scatter":
                return range(block, block + 1)
            case "all_to_all":
                return range(block % self.ranks, block % self.ranks + 1)
            case _:
                return range(self.root, self.root + 1)

    def moved(self, ranks: NDArray[np.signedinteger]) -> NDArray[np.signedinteger] | None:
        """Where each block goes when rank r becomes ranks[r]; None where the root becomes another."""
        if self.kind in ("broadcast", "reduce", "gather", "scatter") and ranks[self.root] != self.root:
            return None
        if self.blocks == 1:
            return np.zeros(1, np.int64)
        if self.kind == "all_to_all":
            return (ranks[:, None] * self.ranks + ranks).reshape(-1)
        return ranks

    def contributors(self, block: int) -> frozenset[int]:
        """Whose data the final block is made of."""
        return frozenset(self.sources(block))

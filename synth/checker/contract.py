"""What each collective demands, derived from its definition alone (the checker believes no other room).

blocks        one block of data, or one per rank, or one per (source, destination) pair
input(rank)   the blocks that the rank's input holds, in order
output(rank)  the blocks that the rank's output must hold afterwards, in order
"""

from __future__ import annotations

from dataclasses import dataclass


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

    def contributors(self, block: int) -> frozenset[int]:
        """Whose data the final block is made of."""
        if self.sums:
            return frozenset(range(self.ranks))
        match self.kind:
            case "all_gather" | "gather":
                return frozenset({block})
            case "all_to_all":
                return frozenset({block // self.ranks})
            case _:
                return frozenset({self.root})

"""The blocks that each rank has in its input and output, from the core's table of collectives."""

from __future__ import annotations

from dataclasses import dataclass

from syntony import _core


@dataclass(frozen=True)
class Blocks:
    """The blocks of one collective. Blocks per (source, destination) pair are source * destinations + destination."""

    kind: str
    ranks: int
    root: int = 0

    @property
    def sums(self) -> bool:
        """Whether outputs are sums over all ranks."""
        return _core.COLLECTIVES[self.kind]["reduces"]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        facts = _core.COLLECTIVES[self.kind]
        return (self.ranks if facts["by_source"] else 1) * (self.ranks if facts["by_destination"] else 1)

    def input(self, rank: int) -> list[int]:
        """Blocks that the rank starts with."""
        facts = _core.COLLECTIVES[self.kind]
        if facts["root_gives"] and rank != self.root:
            return []
        each = self.ranks if facts["by_destination"] else 1
        return list(range(rank * each, (rank + 1) * each)) if facts["by_source"] else list(range(self.blocks))

    def output(self, rank: int) -> list[int]:
        """Blocks that the rank must end with."""
        facts = _core.COLLECTIVES[self.kind]
        if facts["root_takes"] and rank != self.root:
            return []
        return list(range(rank, self.blocks, self.ranks)) if facts["by_destination"] else list(range(self.blocks))

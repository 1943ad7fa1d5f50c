"""A collective on arrays in GPU memory, as both roads take it: kernels (group.py), the hosts' memory (staging.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syntony import _core
from syntony.collectives.calls import Block


@dataclass(frozen=True)
class Call:
    """One collective. `even`: every rank knows all sizes."""

    collective: str
    op: str
    root: int
    blocks: Sequence[Block]
    even: bool
    algorithm: str

    @property
    def own_sizes_only(self) -> bool:
        """Each pair of ranks knows its sizes, and nobody all of them."""
        return self.collective == "all_to_all" and not self.even

    def at_once(self, ranks: int) -> int:
        """Blocks that a rank has to do with."""
        return len(self.blocks) // (ranks if self.collective == "all_to_all" else 1)

    def bytes(self, dtype: str, ranks: int) -> int:
        """By which algorithms are chosen, on CPUs too: of the whole operation; 0 where ranks may not know it alike."""
        longest = max((elements for _, _, elements in self.blocks), default=0)
        return longest * self.at_once(ranks) * _core.itemsize(dtype) if self.even else 0

"""A collective on arrays in GPU memory, as passed to kernels (group.py) or to staging through the host (staging.py)."""

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
        """Whether each pair of ranks knows its sizes but no rank knows all of them."""
        return self.collective == "all_to_all" and not self.even

    def at_once(self, ranks: int) -> int:
        """Number of blocks that a rank handles."""
        return len(self.blocks) // (ranks if self.collective == "all_to_all" else 1)

    def bytes(self, dtype: str, ranks: int) -> int:
        """The size by which algorithms are chosen, as on CPUs: bytes of the whole operation; 0 if ranks may see
        different sizes."""
        longest = max((elements for _, _, elements in self.blocks), default=0)
        return longest * self.at_once(ranks) * _core.itemsize(dtype) if self.even else 0

"""Secondary shards: what neighbours keep among them of weights that were gathered for the forward.

    forward     gathered from all ranks of `dp` ──► each of `near` keeps a part until the step's end
    backward    gathered from `near` alone, whose wires are short

Wang et al., ZeRO++ (arXiv 2306.10209), call it hpZ. The same weights arrive, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from syntony.trainer.parallel.data_parallel.sharded_layer import Shard


class Secondary:
    """Of one rank, the `place`-th of `ranks` neighbours, in one step."""

    def __init__(self, ranks: int, place: int) -> None:
        self.ranks, self._place = ranks, place
        self._kept: dict[Shard, Tensor] = {}

    def begin(self) -> None:
        """A step begins, whose weights are others."""
        self._kept.clear()

    def keep(self, shards: Iterable[Shard], wholes: Mapping[int, Tensor]) -> None:
        """A part of what has been gathered of these; wholes: flat buffers (elements,) by layer."""
        for shard in shards if self.ranks > 1 else ():
            if shard not in self._kept:
                whole = wholes[shard.layer][shard.begin : shard.end]
                self._kept[shard] = whole.view(self.ranks, -1)[self._place].clone()

    def of(self, shard: Shard) -> Tensor:
        """The part that this rank has."""
        return self._kept[shard]

"""Secondary shards: parts of weights gathered for the forward that neighbours keep among themselves.

    forward     gathered from all ranks of `dp` ──► each of `near` keeps a part until the step's end
    backward    gathered only from `near`, over short wires

Wang et al., ZeRO++ (arXiv 2306.10209), call it hpZ. The gathered weights are bit for bit the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from syntony.trainer.parallel.data_parallel.sharded_layer import Shard


class Secondary:
    """One rank's secondary shards, as the `place`-th of `ranks` neighbours, in one step."""

    def __init__(self, ranks: int, place: int) -> None:
        self.ranks, self._place = ranks, place
        self._kept: dict[Shard, Tensor] = {}

    def begin(self) -> None:
        """Called when a step begins, which changes the weights."""
        self._kept.clear()

    def keep(self, shards: Iterable[Shard], wholes: Mapping[int, Tensor]) -> None:
        """Keeps a part of these gathered shards; wholes: flat buffers (elements,) by layer."""
        for shard in shards if self.ranks > 1 else ():
            if shard not in self._kept:
                whole = wholes[shard.layer][shard.begin : shard.end]
                self._kept[shard] = whole.view(self.ranks, -1)[self._place].clone()

    def of(self, shard: Shard) -> Tensor:
        """The part that this rank has."""
        return self._kept[shard]

"""One rank's part of one layer: weights, gradients and optimizer state, whole or in shards.

flat buffer   [        shard 0         |     shard 1      | ..   shards: runs that no planned op divides
of 3 ranks    [ mine  |  of 1 |  of 2 | mine | 1  |  2  | ..   sharded: each shard is cut equally

sharded          weights   gradients               optimizer state     (Rajbhandari et al. 2020, ZeRO)
no               whole     whole                   whole
zero 1           whole     whole                   mine
zero 2           whole     mine once reduced       mine
zero 3           mine      mine once reduced       mine

If replicas of the sharded model share the update (AMSP, Chen et al. 2023: separate factors for weights, gradients and
optimizer), the own part is divided again by replicas: `own` is updated by this rank, and the others send it the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Parameter

from syntony import _torch
from syntony.base.command import UserError
from syntony.trainer.model.layer import Layer
from syntony.trainer.parallel.data_parallel.factors import Factors
from syntony.trainer.parallel.data_parallel.flat import Flat
from syntony.trainer.parallel.data_parallel.tree import Tree


class Shard:
    """Elements [begin, end) of a layer's flat buffer, this rank's part of them, [mine.start, mine.stop), and the part
    that it updates, [own.start, own.stop).

    weights    mine
    updated    own, a part of them; the optimizer's parameters are parts of it
    gradient   mine until it is summed over all ranks, then own; None before, and after the update
    """

    def __init__(self, layer: int, begin: int, end: int, mine: slice, own: slice) -> None:
        self.layer, self.begin, self.end, self.mine, self.own = layer, begin, end, mine, own
        self.weights = self.updated = torch.empty(0)
        self.gradient: Tensor | None = None
        self.counted: Tensor | None = None  # the blocks of 64 elements that this rank counts; None: all
        self.parts: list[tuple[slice, bool]] = []  # of `own`, each with whether it decays
        self.parameters: list[Parameter] = []  # the same parts, as the optimizer has them
        self.rate: float | None = None  # learning rate of the gradient's step; None: the gradient is void
        self.meets = False  # islands exchange what its update has changed

    def blocks(self) -> Tensor:
        """Sums of the gradient's squares that this rank counts."""
        assert self.gradient is not None
        sums = _torch.square_sums(self.gradient)
        return sums if self.counted is None else sums[self.counted]

    @property
    def size(self) -> int:
        return len(self.weights)

    @property
    def spread(self) -> bool:
        """Whether others do the rest of the update."""
        return len(self.updated) < len(self.weights)

    def gradients(self, scale: float) -> list[Tensor]:
        """Of the parts, times `scale`."""
        assert self.gradient is not None
        gradient = self.gradient if scale == 1.0 else self.gradient * scale
        return [gradient[part] for part, _ in self.parts]


@dataclass
class ShardedLayer:
    """One layer on one rank.

    index       of the layer in the model
    lane        on which its gradients are summed
    n, place    number of those ranks, and this rank's index among them
    zero        0 .. 3, as above; 0 if n is 1
    replicas    among which the update is shared, and this rank's index among them
    leaves      microbatches (times sources) in the sum that it makes: its own, or with factors all ranks'
    counted     names of weights whose squares this rank counts (one of several ranks with the same weights)
    factors     communicated instead of gradients; None: gradients are
    """

    index: int
    layer: Layer
    flat: Flat
    lane: str
    n: int
    place: int
    zero: int
    replicas: tuple[int, int]
    leaves: int
    counted: frozenset[str]
    factors: Factors | None = None
    shards: list[Shard] = field(default_factory=list)
    whole: Tensor | None = None  # weights, if they are not sharded
    summed: Tensor | None = None  # this rank's gradient, whole
    _home: Tensor | None = None
    _views: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    _left: set[Shard] = field(default_factory=set)  # shards that have not been reduced yet

    def __post_init__(self) -> None:
        self.tree = Tree(self.leaves, self.home)

    def home(self) -> Tensor:
        """The buffer of the whole gradient, created if missing."""
        if self._home is None:
            self._home = torch.zeros(self.flat.elements)
        return self._home

    def place_gradient(self, home: Tensor) -> None:
        """Gives the gradient a place among other layers' (zero 0 and 1, where it is permanent)."""
        self._home = home

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """The tensors in one of the tree's buffers; made once where these stay."""
        if self.zero >= 2:
            return self.flat.views(buffer)
        where = buffer.data_ptr()
        if where not in self._views:
            self._views[where] = self.flat.views(buffer)
        return self._views[where]

    def reduced(self, shard: Shard) -> None:
        """Called when a shard's gradient has been reduced. With zero 2 and 3 the last one frees the whole."""
        self._left.discard(shard)
        if not self._left:
            self._left = set(self.shards)
            if self.zero >= 2:
                self.summed = self._home = None

    def settle(self, cuts: Sequence[int], weights: Tensor) -> None:
        """Initializes the shards: `weights` are the initial ones, whole; `cuts` the shards' borders with both ends."""
        shares, (replicas, replica) = self.n if self.zero else 1, self.replicas
        counts = torch.zeros(self.flat.elements // 64, dtype=torch.bool)
        for weight, at in self.flat.places:
            counts[at // 64 : -(-(at + weight.elements) // 64)] = weight.name in self.counted
        for begin, end in pairwise(cuts):
            if (end - begin) % (64 * shares * replicas):
                raise UserError(
                    f"the plan cuts layer {self.layer.name!r} at elements {begin} and {end}, "
                    f"which {shares * replicas} ranks cannot share in blocks of 64"
                )
            size = (end - begin) // shares
            start = begin + size * (self.place if self.zero else 0)
            part = size // replicas
            first = start + part * replica
            shard = Shard(self.index, begin, end, slice(start, start + size), slice(first, first + part))
            shard.weights = weights[shard.mine].clone() if self.zero == 3 else weights[shard.mine]
            shard.updated = shard.weights[part * replica :][:part]
            counted = counts[first // 64 : (first + part) // 64]
            shard.counted = None if counted.all() else counted
            border = min(max(self.flat.decaying - first, 0), part)
            parts = (slice(0, border), True), (slice(border, part), False)
            shard.parts = [(part, decays) for part, decays in parts if part.stop > part.start]
            self.shards.append(shard)
        self._left = set(self.shards)
        self.whole = None if self.zero == 3 else weights

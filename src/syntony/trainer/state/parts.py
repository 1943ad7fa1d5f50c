"""One rank's part of a model: of each layer its weights' blocks, and which elements of the optimizer's state.

Names and positions refer to whole tensors, so they are comparable between layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from syntony.trainer.parallel.data_parallel.sharded_layer import ShardedLayer
from syntony.trainer.run.rank import Rank
from syntony.trainer.state.runs import Runs, joined, runs_of, within


class Block(NamedTuple):
    """A weight in a flat buffer: canonical name, the whole tensor's shape, this block's position in it, its first
    element in the buffer, and its number of elements."""

    label: str
    shape: tuple[int, ...]
    place: tuple[tuple[int, int], ...]
    at: int
    elements: int

    @property
    def runs(self) -> Runs:
        """Its elements, and their positions in the flat buffer."""
        box = tuple(begin for begin, _ in self.place), tuple(end - begin for begin, end in self.place)
        return runs_of(self.shape, box, self.at)


Cut = tuple[Block, ...]
"""A layer's weights on some ranks: all of it, or their part of tensor or expert parallelism. Ranks with the same one
have the same elements."""


class Part(NamedTuple):
    """A layer on one rank.

    layer    its number in the model
    spans    [begin, end) of the flat buffer that this rank updates
    held     and the blocks that it has
    """

    layer: int
    cut: Cut
    spans: tuple[tuple[int, int], ...]
    held: tuple[tuple[int, int], ...]

    def runs(self, label: str, kind: str) -> Runs:
        """The elements of a weight (kind ""), or of optimizer state, that this rank needs."""
        return within(self.places(label), self.spans if kind else self.held)

    def places(self, label: str) -> Runs:
        """Where a weight's elements lie in the flat buffer: in a block for each where experts lie one by one."""
        return joined([block.runs for block in self.cut if block.label == label])


def cut_of(sharded: ShardedLayer) -> Cut:
    """A layer's weights on this rank, by their place in the whole model."""
    return tuple(
        Block(
            sharded.layer.label(weight),
            weight.full_shape,
            tuple((part.start, part.stop) for part in weight.place),
            at,
            weight.elements,
        )
        for weight, at in sharded.flat.places
    )


def parts_of(rank: Rank) -> Iterator[Part]:
    """Everything that a rank has."""
    for sharded in rank.updates.layers.values():
        spans = tuple((shard.own.start, shard.own.stop) for shard in sharded.shards)
        mine = tuple((shard.mine.start, shard.mine.stop) for shard in sharded.shards)
        held = mine if sharded.zero == 3 else ((0, sharded.flat.elements),)
        yield Part(sharded.index, cut_of(sharded), spans, held)

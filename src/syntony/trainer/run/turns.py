"""Shards of weights that go round the ranks of `tp` in a step, and their gradients (overlap/step/rotation.py).

A shard is a slice of the owner's flat buffer, sent as it is; what arrives is a buffer of the same size, used by one
segment and passed on from the same memory. The gradient of a shard is a buffer that each rank adds its own part to;
after the last rank it is added to the owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Op
from syntony.overlap.step.op_key import BACKWARD, OpKey
from syntony.overlap.step.rotation import goes_on, is_gradient, is_turn
from syntony.trainer.model.layer import Layer, Move, Product
from syntony.trainer.parallel.context_parallel.split import shifted
from syntony.trainer.parallel.data_parallel.flat import Flat
from syntony.trainer.parallel.data_parallel.leaf import Leaf
from syntony.trainer.parallel.tensor_parallel.rotate import Turn

Where = tuple[int, int, int, str]
"""Layer, microbatch, the number of the transfer, and its direction."""


@dataclass(frozen=True)
class RotatingShard:
    """The weights of a layer that a transfer brings, as they lie in its flat buffer."""

    flat: Flat
    names: tuple[str, ...]

    @property
    def span(self) -> slice:
        return self.flat.span(self.names)

    def views(self, part: Tensor) -> dict[str, Tensor]:
        """The tensors in a buffer with its elements, by name."""
        return self.flat.views_within(part, self.names)


def shards_of(layers: Mapping[int, Layer], flats: Mapping[int, Flat]) -> dict[tuple[int, int], RotatingShard]:
    """By layer and segment: the shard that is brought for it."""
    return {
        (i, t + 1): RotatingShard(flats[i], transfer.weights)
        for i, layer in layers.items()
        for t, transfer in enumerate(layer.transfers)
        if isinstance(transfer, Turn)
    }


@dataclass(frozen=True)
class Turned:
    """A message with a shard, or with the gradient of one.

    where     it arrives
    before    where what it passes on has come from; None: it is the rank's own
    after     the ops that must have ended before it begins
    on        whether it is passed on once more
    """

    op: Op
    where: Where
    before: Where | None
    after: frozenset[OpKey]
    gradient: bool
    on: bool

    @property
    def home(self) -> bool:
        """Whether it brings a gradient to the shard's owner."""
        return self.gradient and not self.on


def turned_of(graph: Graph, layers: Mapping[int, Layer], op: Op, known: frozenset[OpKey]) -> Turned | None:
    """None: the op is another one. `known`: ops that may have to end before it."""
    if not is_turn(graph, op):
        return None
    transfers, t = layers[op.layer].spec.transfers, op.segment
    ends, begins = not goes_on(transfers, t), transfers[t].rotates == 1
    backward = op.key.direction == BACKWARD
    first, last = (ends, begins) if backward else (begins, ends)
    where = op.layer, op.microbatch, t, op.key.direction
    before = None if first else (*where[:2], t + 1 if backward else t - 1, where[3])
    return Turned(op, where, before, known.intersection(op.deps), is_gradient(graph, op), not last)


@dataclass
class Turns:
    """The shards and gradients of one step that are at this rank.

    weights      that have come, or are coming, and
    uses         how often each is still needed: by a segment, and to be passed on
    gradients    of this rank's sequences, of others' shards
    came         gradients that have come, or are coming, and will be added to these
    sent         gradients that are leaving
    """

    weights: dict[Where, Tensor] = field(default_factory=dict)
    uses: dict[Where, int] = field(default_factory=dict)
    gradients: dict[Where, Tensor] = field(default_factory=dict)
    came: dict[Where, Tensor] = field(default_factory=dict)
    sent: dict[Where, Tensor] = field(default_factory=dict)

    def begin(self, turn: Turned, own: Callable[[], Tensor], place: tuple[int, int]) -> Move:
        """The message of a turn. `own`: the rank's own shard; `place`: its index in the group, and the group's size."""
        where, before = turn.where, turn.before
        if turn.gradient:
            sent = self.gradients.pop(where)
            if before is not None:
                sent += self.came.pop(before)
            self.sent[where] = sent
        else:
            sent = own() if before is None else self.weights[before]
            self.uses[where] = 1 + turn.on
            if before is not None:
                self.used(before)
        move = shifted(sent, *place, by=-1 if turn.op.key.direction == BACKWARD else 1)
        (self.came if turn.gradient else self.weights)[where] = move.output
        return move

    def used(self, where: Where) -> None:
        """Called when a segment has been computed with a shard; frees it if it has been passed on."""
        self.uses[where] -= 1
        if not self.uses[where]:
            del self.uses[where], self.weights[where]

    def gradient(self, i: int, m: int, t: int, shard: RotatingShard) -> Tensor:
        """The buffer for the gradient of a shard that is another rank's."""
        if (i, m, t, BACKWARD) not in self.gradients:
            self.gradients[i, m, t, BACKWARD] = torch.zeros(shard.span.stop - shard.span.start)
        return self.gradients[i, m, t, BACKWARD]

    @property
    def held(self) -> list[Tensor]:
        return [tensor for each in (self.weights, self.gradients, self.came, self.sent) for tensor in each.values()]


class TurningLeaf(Leaf):
    """The gradients of a segment that uses another rank's shard, and perhaps weights of its own.

    own    takes those of its own weights
    """

    def __init__(self, own: Leaf, views: dict[str, Tensor]) -> None:
        super().__init__([], [views], 0)
        self._own = own

    def write(self, name: str, gradient: Tensor) -> None:
        write = super().write if name in self.views[0] else self._own.write
        write(name, gradient)

    def multiply(self, product: Product) -> None:
        multiply = super().multiply if product.weight in self.views[0] else self._own.multiply
        multiply(product)

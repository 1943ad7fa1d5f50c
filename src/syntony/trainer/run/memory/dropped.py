"""Frees the output of a transfer behind the forward, and repeats the transfer for the backward (CommSpec.uses).

    forward     transfer ──► memory, views of it in autograd's graph ──► dropped: the memory is empty, the views stay
    backward    the same transfer, from the same input ──► the same memory, at its old size

FullyShardedDataParallel resizes the storage of its flat parameters likewise (Zhao et al., VLDB 2023, section 3.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from syntony.overlap.step.op_key import OpKey
from syntony.trainer.model.layer import Move, Transfer

Where = tuple[int, int, int]
"""Layer, microbatch, and the number of the transfer."""


@dataclass
class Dropped:
    """The dropped tensors of one step.

    sources    the inputs of transfers that will be repeated
    places     where their outputs were
    coming     by op, the transfer in flight, and its destination
    """

    sources: dict[Where, Tensor] = field(default_factory=dict)
    places: dict[Where, Tensor] = field(default_factory=dict)
    coming: dict[OpKey, tuple[Move, Tensor]] = field(default_factory=dict)

    def drop(self, where: Where, brought: Tensor) -> None:
        """Called after its last use in the forward."""
        brought.untyped_storage().resize_(0)
        if where in self.sources:
            self.places[where] = brought

    def again(self, key: OpKey, where: Where, transfer: Transfer) -> Move:
        """The communication that this op repeats."""
        place, move = self.places.pop(where), transfer.forward(self.sources.pop(where), ())
        place.untyped_storage().resize_(place.nbytes)
        move = replace(move, output=place.data) if move.finish(move.output) is move.output else move
        self.coming[key] = move, place
        return move

    def arrived(self, key: OpKey) -> None:
        """Called when the op has ended; assembles outputs that arrived in other pieces. Ignores other ops."""
        if key in self.coming:
            move, place = self.coming.pop(key)
            if move.output.data_ptr() != place.data_ptr():
                place.data.copy_(move.finish(move.output))

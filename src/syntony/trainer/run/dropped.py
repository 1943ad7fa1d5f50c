"""What a transfer brought may be dropped behind the forward, and come again for the backward (CommSpec.uses).

    forward     transfer ──► memory, views of it in autograd's graph ──► dropped: the memory is empty, the views stay
    backward    the same transfer, of what it took ──► the same memory, as large as before

As FullyShardedDataParallel resizes the storage of its flat parameters (Zhao et al., VLDB 2023, section 3.2.1).
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
    """Of one step.

    sources    what transfers took that will move once more
    places     where what they brought was
    coming     by op, what is on its way, and to where
    """

    sources: dict[Where, Tensor] = field(default_factory=dict)
    places: dict[Where, Tensor] = field(default_factory=dict)
    coming: dict[OpKey, tuple[Move, Tensor]] = field(default_factory=dict)

    def drop(self, where: Where, brought: Tensor) -> None:
        """Its last user of the forward has run."""
        brought.untyped_storage().resize_(0)
        if where in self.sources:
            self.places[where] = brought

    def again(self, key: OpKey, where: Where, transfer: Transfer) -> Move:
        """What is to be moved once more by this op."""
        place, move = self.places.pop(where), transfer.forward(self.sources.pop(where), ())
        place.untyped_storage().resize_(place.nbytes)
        move = replace(move, output=place.data) if move.finish(move.output) is move.output else move
        self.coming[key] = move, place
        return move

    def arrived(self, key: OpKey) -> None:
        """The op has ended; what came in other pieces is put together. Nothing, of other ops."""
        if key in self.coming:
            move, place = self.coming.pop(key)
            if move.output.data_ptr() != place.data_ptr():
                place.data.copy_(move.finish(move.output))

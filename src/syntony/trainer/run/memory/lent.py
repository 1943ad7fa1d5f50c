"""Activations that a device lends to another one temporarily (BPipe): only their memory moves.

    lender      storages of what segments keep ──► one message; they are emptied, tensors and autograd's graph stay
    borrower                                       the message, as received
    lender      the same storages, at their old size ◄── the message

dropped.py empties storages in the same way, and so does FullyShardedDataParallel for its flat parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, UntypedStorage

from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import LENT, RETURNED, OpKey
from syntony.trainer.run.memory.kept import Kept

Keeping = Mapping[tuple[int, int, int], Mapping[int, Kept]]  # by layer, microbatch and segment, and by part


@dataclass
class Lent:
    """The loans of one step, by microbatch.

    away      the storages that are away, with the bytes of each
    held      messages in flight, and those of another device that are here
    """

    away: dict[int, list[tuple[UntypedStorage, int]]] = field(default_factory=dict)
    held: dict[int, Tensor] = field(default_factory=dict)

    def begin(self, op: Op, keeping: Keeping, text: Sequence[Tensor]) -> Tensor:
        """The buffer for the op, which is an end of a message that lends or returns. Borrowed data goes back by itself
        (plan_runner.py)."""
        m, size = op.microbatch, int(op.amount)
        lends = op.kind is Kind.SEND
        self.held[m] = self._packed(m, size, keeping, text) if lends else torch.empty(size, dtype=torch.uint8)
        return self.held[m]

    def ended(self, key: OpKey) -> None:
        """Called when one of these ops has ended: restores returned storages, and frees messages that are no longer
        needed."""
        m, kind, way = key.microbatch, key.kind, key.direction
        if way not in (LENT, RETURNED) or (kind, way) == (Kind.RECV, LENT):
            return
        message, at = self.held.pop(m), 0
        for storage, count in self.away.pop(m) if kind == Kind.RECV else ():
            storage.resize_(count)
            _bytes(storage).copy_(message[at : at + count])
            at += count
        message.untyped_storage().resize_(0)

    def _packed(self, microbatch: int, size: int, keeping: Keeping, text: Sequence[Tensor]) -> Tensor:
        """Empties and packs the microbatch's own storages, as many as fit into `size` bytes. Storages shared with other
        microbatches, and the text, do not count as activations."""
        own, staying = dict[int, UntypedStorage](), {tensor.untyped_storage()._cdata for tensor in text}
        for (_, m, _), parts in keeping.items():
            storages = {storage._cdata: storage for kept in parts.values() for storage in kept.storages}
            if m == microbatch:
                own |= storages
            else:
                staying |= storages.keys()
        message, at = torch.empty(size, dtype=torch.uint8), 0
        away = self.away[microbatch] = []
        for name, storage in own.items():
            count = storage.nbytes()
            if name not in staying and at + count <= size:
                message[at : at + count] = _bytes(storage)
                storage.resize_(0)
                away.append((storage, count))
                at += count
        return message


def _bytes(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

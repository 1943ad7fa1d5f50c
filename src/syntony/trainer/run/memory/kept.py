"""What one segment's run keeps for its backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, UntypedStorage

from syntony.trainer.model.layer import ForwardContext

Tensors = tuple[Tensor, ...]


@dataclass
class Kept:
    """`outputs` are empty if they will be recomputed; `saved`: what autograd keeps, if requested."""

    inputs: Tensors
    outputs: Tensors
    context: ForwardContext
    saved: list[UntypedStorage] = field(default_factory=list)

    @property
    def storages(self) -> Iterator[UntypedStorage]:
        """The storages of everything kept."""
        yield from (tensor.untyped_storage() for tensor in (*self.inputs, *self.outputs, *self.context.leaves.values()))
        yield from self.saved


@contextmanager
def saving(note: Callable[[Tensor], object]) -> Iterator[None]:
    """Reports every tensor that autograd saves of the computation inside."""

    def pack(tensor: Tensor) -> Tensor:
        note(tensor)
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield

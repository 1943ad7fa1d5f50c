"""A layer's weights, or their gradients, as one flat buffer of which the tensors are views.

    [ matrix | matrix | .. | vector | vector | .. | padding ]
             ^ every tensor begins at a multiple of 64 elements       ^ up to a multiple of `multiple`
    `------ decays -------'`---- does not -----'

    blocks    [ matrix 0 | other 0 | .. | matrix 1 | other 1 | .. ]     of experts, whose matrices are adjacent

So a reduction, a gather of weights and an optimizer can take any slice of it, cut at multiples of 64 elements, without
a copy; an elementwise optimizer gives the same bits on slices as on the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from syntony.trainer.model.layer import Weight

ALIGNMENT = 64  # elements


@dataclass(frozen=True)
class Flat:
    """The position of each tensor, or of each block of one.

    weights     the tensors
    decaying    elements before the first vector
    shared      elements before the first tensor that the ranks of `tp` share (`Weight.shared`)
    """

    places: tuple[tuple[Weight, int], ...]
    decaying: int
    shared: int
    elements: int
    weights: tuple[Weight, ...]

    @classmethod
    def of(cls, weights: Sequence[Weight], multiple: int = ALIGNMENT, blocks: bool = False) -> Flat:
        """The whole buffer is padded to `multiple` elements, itself a multiple of 64; with `blocks`, each block is.

        blocks    all weights are matrices with equally many blocks along their first axis
        """
        places, end, decaying, shared = [], 0, 0, 0
        if blocks:
            for block in range(weights[0].shape[0]):
                for weight in weights:
                    places.append((weight.block(0, block, 1), end))
                    end = _up(end + weight.elements // weight.shape[0], ALIGNMENT)
                end = _up(end, multiple)
            return cls(tuple(places), end, end, end, tuple(weights))
        for weight in sorted(weights, key=lambda weight: (not weight.is_matrix, weight.shared)):
            places.append((weight, end))
            end = _up(end + max(weight.elements, weight.room), ALIGNMENT)
            decaying = end if weight.is_matrix else decaying
            shared = shared if weight.shared else end
        return cls(tuple(places), decaying, shared, _up(end, multiple), tuple(weight for weight, _ in places))

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """The tensors in a buffer of `elements`, by name."""
        found: dict[str, Tensor] = {}
        for weight, (_, at) in zip(self.weights, self.places, strict=False):
            size = weight.elements // self._blocks
            stride = self.elements // self._blocks if self._blocks > 1 else size
            rows = buffer.as_strided((self._blocks, size), (stride, 1), buffer.storage_offset() + at)
            found[weight.name] = rows.view(weight.shape)
        return found

    def span(self, names: Collection[str]) -> slice:
        """The elements of these tensors, which are adjacent, with the padding between them."""
        found = [(at, max(w.elements, w.room)) for w, at in self.places if w.name in names]
        return slice(found[0][0], _up(found[-1][0] + found[-1][1], ALIGNMENT))

    def views_within(self, part: Tensor, names: Collection[str]) -> dict[str, Tensor]:
        """The tensors in a buffer of their `span`, by name."""
        begin = self.span(names).start
        chosen = [(w, at - begin) for w, at in self.places if w.name in names]
        return {w.name: part[at : at + w.elements].view(w.shape) for w, at in chosen}

    @property
    def _blocks(self) -> int:
        return len(self.places) // len(self.weights)

    def begin(self, seed: int, layer: str) -> Tensor:
        """A buffer with the initial values."""
        buffer = torch.zeros(self.elements)
        views = self.views(buffer)
        for weight in self.weights:
            views[weight.name].copy_(weight.begin(seed, layer))
        return buffer


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Flat tensors that are adjacent in memory, as one; None if they are not."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or tensor.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None
        end += tensor.numel() * tensor.element_size()
    return first.as_strided((sum(tensor.numel() for tensor in tensors),), (1,), first.storage_offset())

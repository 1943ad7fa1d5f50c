"""A layer's weights, or their gradients, as one flat buffer of which the tensors are views.

    [ matrix | matrix | .. | vector | vector | .. | padding ]
             ^ every tensor begins at a multiple of 64 elements       ^ up to a multiple of `multiple`
    `------ decays -------'`---- does not -----'

So a reduction, a gather of weights and an optimizer take any slice of it, cut at multiples of 64 elements, without a
copy; an elementwise optimizer gives the same bits on the slices as on the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from syntony.trainer.model.layer import Weight

ALIGNMENT = 64  # elements


@dataclass(frozen=True)
class Flat:
    """Where each tensor lies.

    decaying    elements before the first vector
    shared      elements before the first tensor that the ranks of `tp` share (`Weight.shared`)
    """

    places: tuple[tuple[Weight, int], ...]
    decaying: int
    shared: int
    elements: int

    @classmethod
    def of(cls, weights: Sequence[Weight], multiple: int = ALIGNMENT) -> Flat:
        """`multiple` of elements, itself one of 64, that the whole buffer is padded to."""
        places, end, decaying, shared = [], 0, 0, 0
        for weight in sorted(weights, key=lambda weight: (not weight.is_matrix, weight.shared)):
            places.append((weight, end))
            end = _up(end + max(weight.elements, weight.room), ALIGNMENT)
            decaying = end if weight.is_matrix else decaying
            shared = shared if weight.shared else end
        return cls(tuple(places), decaying, shared, _up(end, multiple))

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """The tensors in a buffer of `elements`, by name."""
        return {weight.name: buffer[at : at + weight.elements].view(weight.shape) for weight, at in self.places}

    def begin(self, seed: int, layer: str) -> Tensor:
        """A buffer with the first values."""
        buffer = torch.zeros(self.elements)
        for weight, at in self.places:
            buffer[at : at + weight.elements] = weight.begin(seed, layer).flatten()
        return buffer


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple

"""The norm of all gradients, exact regardless of how they are distributed.

Squares of float32 are exact in float64. Blocks of 64 elements, which no cut divides, are summed in float64 as a
pairwise tree (csrc/torch/queues/tree_sum.hpp); the sums of blocks are then added *without rounding*, as whole numbers
times 2^-1200. Integer addition is associative: however layers are cut, sharded and distributed, the norm has the same
bits, and ranks exchange one number each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

_POINT = 1200  # binary digits behind the point; squares of float32 are multiples of 2^-298
_HALF = 26  # a float64's 53 digits are added as two halves


@dataclass(frozen=True)
class ExactSum:
    """A sum without rounding: `scaled` is the sum times 2^1200, or infinity if a term is not finite."""

    scaled: int | float = 0

    BYTES: ClassVar = 320
    """What one takes when it travels: as many squares of float32 as there can be have fewer digits."""

    @classmethod
    def of(cls, terms: Tensor) -> ExactSum:
        """Of float64 terms that are 0 or more."""
        values = terms.cpu().numpy()
        if not np.isfinite(values).all():
            return cls(math.inf)
        mantissas, exponents = np.frexp(values)
        whole = (mantissas * 2.0**53).astype(np.int64)
        low = whole & ((1 << _HALF) - 1)
        lowest = int(exponents.min(initial=0))
        sums = [np.bincount(exponents - lowest, weights=part) for part in (low, whole >> _HALF)]
        total = 0
        for part, shift in zip(sums, (0, _HALF), strict=True):
            for place, count in enumerate(part):
                total += int(count) << (place + shift + lowest - 53 + _POINT)
        return cls(total)

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.scaled + other.scaled)

    @property
    def root(self) -> float:
        """The square root: the norm, of a sum of squares."""
        return math.sqrt(self.scaled if isinstance(self.scaled, float) else self.scaled / (1 << _POINT))

    def to_bytes(self) -> bytes:
        """BYTES of them; all ones for infinity."""
        return _INFINITE if isinstance(self.scaled, float) else self.scaled.to_bytes(self.BYTES, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> ExactSum:
        return cls(math.inf if data == _INFINITE else int.from_bytes(data, "big"))


_INFINITE = b"\xff" * ExactSum.BYTES

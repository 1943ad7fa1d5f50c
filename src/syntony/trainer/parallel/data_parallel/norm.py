"""The norm of all gradients, exact whoever holds which part of them.

Squares of float32 are exact in float64. Blocks of 64 elements, which no cut divides, are summed in float64 as a
pairwise tree (csrc/torch/queues/tree_sum.hpp); the sums of blocks are then added *without rounding*, as whole numbers
times 2^-1200. Integer sums have no order: however layers are cut, sharded and spread, the norm has the same bits, and
ranks exchange one number each.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

_POINT = 1200  # binary digits behind the point; squares of float32 are multiples of 2^-298
_HALF = 26  # a float64's 53 digits are added as two halves


def exact(terms: Tensor) -> int | float:
    """Their sum times 2^1200, exact; infinity if one of them is not a finite number."""
    values = terms.cpu().numpy()
    if not np.isfinite(values).all():
        return math.inf
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    low = whole & ((1 << _HALF) - 1)
    lowest = int(exponents.min(initial=0))
    sums = [np.bincount(exponents - lowest, weights=part) for part in (low, whole >> _HALF)]
    total = 0
    for part, shift in zip(sums, (0, _HALF), strict=True):
        for place, count in enumerate(part):
            total += int(count) << (place + shift + lowest - 53 + _POINT)
    return total


def root(total: int | float) -> float:
    """The norm, of a sum that `exact` has made."""
    return math.sqrt(total if isinstance(total, float) else total / (1 << _POINT))

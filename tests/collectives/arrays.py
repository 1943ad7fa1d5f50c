"""The arrays of the tests: three ways to hand NumPy memory over, and values that add alike in every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch tensors are among the arrays that are tested")

Array = NDArray[Any]
Door = Callable[[Array], Any]


class OnlyDLPack:
    """An array of a library that nobody has heard of."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


DOORS: dict[str, Door] = {
    "numpy": lambda array: array,
    "torch": torch.from_numpy,
    "dlpack": OnlyDLPack,
}


def values(rank: int, count: int, dtype: str = "float32") -> Array:
    return ((np.arange(count) * (rank + 2) + rank) % 97).astype(dtype)


def same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def whole_of(counts: list[int], of: Callable[[int, int], Array] = values) -> Array:
    return np.concatenate([of(rank, count) for rank, count in enumerate(counts)])


def starts_of(counts: list[int]) -> list[int]:
    return [sum(counts[:rank]) for rank in range(len(counts) + 1)]

"""Dataclasses of NumPy columns in the core's format: contiguous, one-dimensional, each of one element type.

A field `bytes: Float64` takes any array and becomes a read-only column of float64; a field `after: Int32` takes
integers of any width and becomes a read-only column of int32. Fields of other types are left unchanged.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = Annotated[NDArray[np.float64], np.float64]
Int64 = Annotated[NDArray[np.signedinteger], np.int64]
Int32 = Annotated[NDArray[np.signedinteger], np.int32]
UInt8 = Annotated[NDArray[np.integer], np.uint8]


class Columns:
    """Base class of such dataclasses."""

    _dtypes: ClassVar[dict[str, type[np.generic]]]

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls._dtypes = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}

    def __post_init__(self) -> None:
        for name, dtype in self._dtypes.items():
            object.__setattr__(self, name, column(getattr(self, name), dtype))


def column(values: ArrayLike, dtype: type[np.generic]) -> NDArray[np.generic]:
    """A read-only, contiguous column."""
    found = np.ascontiguousarray(values, dtype).view()
    found.setflags(write=False)
    return found

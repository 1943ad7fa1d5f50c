"""Where arrays lie: NumPy's are read without asking them, and must be what the buffer protocol says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from syntony import _core

LETTERS = "?bBhHiIlLqQefdgFDG"
OTHERS = (">f4", ">i2", "<f4", "O", "S3", "U2", "V4", "M8[s]", "m8[us]", [("x", "f4"), ("y", "i4")])
SHAPES: dict[str, Callable[[Any], Any]] = {
    "of a number": lambda array: array.reshape(-1)[0:1].reshape(()),
    "flat": lambda array: array.reshape(-1),
    "empty": lambda array: array[:0],
    "rows": lambda array: array,
    "transposed": lambda array: array.T,
    "every other": lambda array: array.reshape(-1)[::2],
    "a column": lambda array: array[:, :1],
}


def by_buffer_protocol(array: Any) -> object:
    try:
        return _core.contiguous(memoryview(array))
    except (ValueError, BufferError):
        return None  # it shows its memory to nobody


@pytest.mark.parametrize("dtype", [*LETTERS, *OTHERS], ids=str)
def test_arrays_are_what_they_say_of_themselves(dtype: Any) -> None:
    for shape, part in SHAPES.items():
        for writable in (True, False):
            array = part(np.zeros((4, 6), dtype))
            array.flags.writeable = writable
            assert _core.contiguous(array) == by_buffer_protocol(array), (shape, writable)
            assert shape != "flat" or dtype not in list("?bBhHiIlLqQefdFD") or _core.contiguous(array) is not None


def test_subclasses_and_other_objects_show_their_memory_too() -> None:
    class Mine(np.ndarray[Any, Any]):
        """A subclass."""

    array = np.arange(6, dtype=np.float32)
    assert _core.contiguous(array.view(Mine)) == _core.contiguous(array) is not None
    assert _core.contiguous(bytearray(3))[1:] == (3, "uint8", True)
    assert _core.contiguous([1, 2]) is None

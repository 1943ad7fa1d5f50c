"""What an array on a GPU is: an address, a number of elements, an element type, a GPU.

torch tensors, cupy arrays and whatever else shows `__cuda_array_interface__` or speaks DLPack are taken as they lie in
memory. Nothing is imported for it: torch and cupy are here when their arrays are; a DLPack object of another library
needs cupy to be read.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from collectives.buffers import Buffer, UsageError, buffer_of, known_dtype

_DLPACK_CUDA = (2, 13)
"""kDLCUDA and kDLCUDAManaged of dlpack.h."""


def on_gpu(array: Any) -> bool:
    """Whether it is an array in the memory of a CUDA GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return bool(array.device.type == "cuda")
    if isinstance(array, np.ndarray):
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in _DLPACK_CUDA


def gpu_buffer_of(array: Any, what: str, writable: bool) -> Buffer:
    """As buffer_of, of arrays on GPUs only."""
    if not on_gpu(array):
        raise UsageError(f"{what} is a {type(array).__name__} that lies on no CUDA GPU")
    return buffer_of(array, what, writable)


def buffer_shown(array: Any, what: str, writable: bool) -> Buffer:
    """The memory of an array on a GPU that is no tensor."""
    device = int(array.__dlpack_device__()[1]) if hasattr(array, "__dlpack_device__") else 0
    if not hasattr(array, "__cuda_array_interface__"):
        array = _through_cupy(array, what)
    return _of_interface(array, what, writable)._replace(device=device)


def _through_cupy(array: Any, what: str) -> Any:
    try:
        import cupy
    except ImportError:
        raise UsageError(f"{what} is a {type(array).__name__}; reading it through DLPack needs cupy") from None
    try:
        return cupy.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise UsageError(f"{what} cannot be seen as a cupy array through DLPack: {error}") from None


def _of_interface(array: Any, what: str, writable: bool) -> Buffer:
    """Version 3 of the CUDA array interface, as numba's documentation states it."""
    shown = array.__cuda_array_interface__
    kind = np.dtype(shown["typestr"])
    # A type that NumPy has no letter for (bfloat16) shows as bytes; the array itself knows its name.
    name = known_dtype(getattr(getattr(array, "dtype", kind), "name", kind.name), what)
    if not kind.isnative:
        raise UsageError(f"{what} holds {kind.name} in the byte order of another machine; convert it first")
    if shown.get("mask") is not None:
        raise UsageError(f"{what} is a masked array; pass a plain one")
    if writable and shown["data"][1]:
        raise UsageError(f"{what} is read-only")
    elements, stride = 1, kind.itemsize
    for size, step in zip(reversed(shown["shape"]), reversed(shown.get("strides") or ()), strict=False):
        if size > 1 and step != stride:
            raise UsageError(
                f"{what} is not contiguous in memory (strides {shown['strides']}); pass a contiguous array"
            )
        stride *= size
    for size in shown["shape"]:
        elements *= int(size)
    return Buffer(int(shown["data"][0]), elements, name, array)

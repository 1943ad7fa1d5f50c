"""How the runtime sees an array: an address, a number of elements, an element type.

NumPy arrays (ml_dtypes' included), torch tensors, cupy arrays and all objects that support DLPack or
`__cuda_array_interface__` are used in place, in the memory of the CPU or of a GPU, without copies. torch and cupy are
never imported for this unless their arrays are passed; a DLPack object of another library on a GPU needs cupy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syntony import _core

_DLPACK_CUDA = (2, 13)
"""kDLCUDA and kDLCUDAManaged of dlpack.h."""


class UsageError(ValueError):
    """An invalid call; the message says what would be valid."""


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """An array in page-aligned memory that all ranks of this host can map, in huge pages if the kernel has them.

    It is zeroed. From 2 MiB on it comes at once, in huge pages near the caller's CPU, where Linux merges small ones on
    request and has memory to spare; otherwise each page is placed near the thread that first writes it. Children made
    by fork() share it.
    Raises MemoryError if the system has no memory left.
    """
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise UsageError(f"an array of {kind.name} holds references, which no other process could read")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise UsageError(f"an array has no negative sizes; the shape was {sizes}")
    elements = prod(sizes)
    try:
        memory = _core.allocate(elements * kind.itemsize)
    except _core.CommunicationError as error:
        raise MemoryError(str(error)) from None
    return memory.view(kind).reshape(sizes)


class Buffer(NamedTuple):
    """Contiguous memory of `elements` elements of `dtype`; `owner` keeps it alive."""

    address: int
    elements: int
    dtype: str
    owner: Any
    device: int = -1
    """The index of the GPU that holds the memory; -1 for the CPU."""

    @property
    def itemsize(self) -> int:
        return _itemsize(self.dtype)

    def at(self, element: int) -> int:
        """The address of an element."""
        return self.address + element * _itemsize(self.dtype)


@cache
def _itemsize(dtype: str) -> int:
    return _core.itemsize(dtype)


def buffer_of(array: Any, what: str, writable: bool) -> Buffer:
    """The memory of an array on the CPU or a GPU; `what` names it in a UsageError ("the output of all_gather")."""
    kind, torch = type(array), sys.modules.get("torch")
    seen = _core.contiguous(array) if kind is np.ndarray or (torch is not None and kind is torch.Tensor) else None
    if seen is not None and (seen[3] or not writable):  # the common case; the rest is for other arrays and for errors
        return Buffer(seen[0], seen[1], seen[2], array)
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_tensor(array, what)
    if not isinstance(array, np.ndarray):
        if _on_gpu(array):
            return _of_gpu_array(array, what, writable)
        array = _from_dlpack(array, what)
    if not array.flags.c_contiguous:
        raise UsageError(f"{what} is not contiguous in memory (strides {array.strides}); pass a contiguous array")
    if not array.dtype.isnative:
        raise UsageError(f"{what} holds {array.dtype.name} in the byte order of another machine; convert it first")
    if writable and not array.flags.writeable:
        raise UsageError(f"{what} is read-only")
    return Buffer(array.ctypes.data, array.size, _known_dtype(array.dtype.name, what), array)


def host_buffer_of(array: Any, what: str, writable: bool) -> Buffer:
    """The memory of an array on the CPU."""
    found = buffer_of(array, what, writable)
    if found.device >= 0:
        raise UsageError(f"{what} lies on GPU {found.device}; this call moves CPU memory")
    return found


def _from_dlpack(array: Any, what: str) -> Any:
    if not hasattr(array, "__dlpack__"):
        raise UsageError(f"{what} is a {type(array).__name__}; pass a NumPy array, a torch tensor or a DLPack object")
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:  # on another device, or a type that NumPy lacks
        raise UsageError(f"{what} cannot be seen as a NumPy array through DLPack: {error}") from None


def _of_tensor(tensor: Any, what: str) -> Buffer:
    place = tensor.device
    if place.type not in ("cpu", "cuda"):
        raise UsageError(f"{what} lies on {place}; this runtime moves memory of the CPU and of CUDA GPUs")
    if not str(tensor.layout).endswith("strided"):
        raise UsageError(f"{what} is a {tensor.layout} tensor; pass a dense one")
    if not tensor.is_contiguous():
        raise UsageError(f"{what} is not contiguous in memory (strides {tuple(tensor.stride())}); call .contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise UsageError(
            f"{what} is a conjugate or negative that memory does not hold yet; call .resolve_conj().resolve_neg()"
        )
    name = _known_dtype(str(tensor.dtype).removeprefix("torch."), what)
    return Buffer(tensor.data_ptr(), tensor.numel(), name, tensor, -1 if place.type == "cpu" else place.index)


def _on_gpu(array: Any) -> bool:
    """Whether the array is in the memory of a CUDA GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return bool(array.device.type == "cuda")
    if isinstance(array, np.ndarray):
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in _DLPACK_CUDA


def _of_gpu_array(array: Any, what: str, writable: bool) -> Buffer:
    """The memory of an array on a GPU that is not a torch tensor."""
    device = int(array.__dlpack_device__()[1]) if hasattr(array, "__dlpack_device__") else 0
    if not hasattr(array, "__cuda_array_interface__"):
        array = _through_cupy(array, what)
    return _of_interface(array, what, writable)._replace(device=device)


def _through_cupy(array: Any, what: str) -> Any:
    try:
        import cupy
    except ImportError:
        raise UsageError(
            f"{what} is a {type(array).__name__}; reading it through DLPack needs cupy (pip install 'syntony[cuda]')"
        ) from None
    try:
        return cupy.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise UsageError(f"{what} cannot be seen as a cupy array through DLPack: {error}") from None


def _of_interface(array: Any, what: str, writable: bool) -> Buffer:
    """Reads version 3 of the CUDA array interface, as specified in numba's documentation."""
    shown = array.__cuda_array_interface__
    kind = np.dtype(shown["typestr"])
    # Types without a NumPy type code (bfloat16) appear as bytes; the array's own dtype has the name.
    name = _known_dtype(getattr(getattr(array, "dtype", kind), "name", kind.name), what)
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


def _known_dtype(name: str, what: str) -> str:
    """The name if the runtime supports the type, otherwise raises UsageError."""
    if name not in _core.DTYPES:
        raise UsageError(f"{what} holds {name}; possible are {', '.join(_core.DTYPES)}")
    return name


def overlap(a: Buffer, b: Buffer) -> bool:
    """Whether two arrays have bytes in common."""
    both = a.elements > 0 and b.elements > 0
    return both and a.address < b.at(b.elements) and b.address < a.at(a.elements)

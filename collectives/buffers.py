"""What an array is to the runtime: an address, a number of elements, an element type.

NumPy arrays (ml_dtypes' included), torch tensors and whatever else speaks DLPack are taken as they lie in memory, the
CPU's or a GPU's (cuda/arrays.py): nothing is copied, results are written in place. torch is never imported here; a
tensor brings it along.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from csrc import _core


class UsageError(ValueError):
    """A call that cannot mean anything; the sentence says what would."""


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """An array in page-aligned memory that all ranks of this host could map, in huge pages where the kernel has them.

    It holds zeros, and its pages lie near the thread that writes them first. Children made by fork() share it.
    MemoryError when the system has none.
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
    """The number of the GPU whose memory it is; -1 for the CPU's."""

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
    """The memory of an array, the CPU's or a GPU's; `what` names it in a UsageError ("the output of all_gather")."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_tensor(array, what)
    seen = _core.contiguous(array) if type(array) is np.ndarray else None
    if seen is not None and (seen[3] or not writable):  # nearly always; what follows is for the rest and its sentences
        return Buffer(seen[0], seen[1], seen[2], array)
    if not isinstance(array, np.ndarray):
        from collectives.cuda.arrays import buffer_shown, on_gpu

        if on_gpu(array):
            return buffer_shown(array, what, writable)
        array = _from_dlpack(array, what)
    if not array.flags.c_contiguous:
        raise UsageError(f"{what} is not contiguous in memory (strides {array.strides}); pass a contiguous array")
    if not array.dtype.isnative:
        raise UsageError(f"{what} holds {array.dtype.name} in the byte order of another machine; convert it first")
    if writable and not array.flags.writeable:
        raise UsageError(f"{what} is read-only")
    return Buffer(array.ctypes.data, array.size, known_dtype(array.dtype.name, what), array)


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
    except (BufferError, RuntimeError, TypeError) as error:  # another device, or a type that NumPy does not have
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
    name = known_dtype(str(tensor.dtype).removeprefix("torch."), what)
    return Buffer(tensor.data_ptr(), tensor.numel(), name, tensor, -1 if place.type == "cpu" else place.index)


def known_dtype(name: str, what: str) -> str:
    """One of ours, or a UsageError."""
    if name not in _core.DTYPES:
        raise UsageError(f"{what} holds {name}; possible are {', '.join(_core.DTYPES)}")
    return name


def overlap(a: Buffer, b: Buffer) -> bool:
    """Whether two arrays have bytes in common."""
    both = a.elements > 0 and b.elements > 0
    return both and a.address < b.at(b.elements) and b.address < a.at(a.elements)

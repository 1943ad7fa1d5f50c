"""Element types under nccl-tests' names, and how small integers are written in them.

Buffers are NumPy memory. bfloat16 and the float8 formats have no NumPy type: their memory is unsigned integers, and
callers see it through a torch view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Element:
    """`exact`: every integer from 0 to this one has its own representation. `torch` names the torch dtype."""

    name: str
    torch: str
    storage: np.dtype[Any]
    exact: int
    integer: bool = False
    numpy_native: bool = True

    @property
    def item_bytes(self) -> int:
        return self.storage.itemsize

    def encode(self, values: npt.NDArray[np.int64]) -> Array:
        """`values` (0 <= v <= exact) in this type, as `storage`."""
        if self.numpy_native:
            return values.astype(self.storage)
        import torch

        bits = {1: torch.uint8, 2: torch.int16}[self.item_bytes]
        encoded = torch.from_numpy(values).to(torch.float32).to(getattr(torch, self.torch)).view(bits)
        memory: Array = encoded.numpy().view(self.storage)
        return memory

    def as_tensor(self, memory: Array) -> Any:
        """`memory` (of `storage`) as a torch tensor of this type; nothing is copied."""
        import torch

        if self.numpy_native:
            return torch.from_numpy(memory)
        signed = memory.view(np.int16 if self.item_bytes == 2 else np.uint8)
        return torch.from_numpy(signed).view(getattr(torch, self.torch))


def _element(name: str, torch: str, storage: str, exact: int, **flags: bool) -> Element:
    return Element(name, torch, np.dtype(storage), exact, **flags)


_ELEMENTS = (
    _element("int8", "int8", "int8", 127, integer=True),
    _element("uint8", "uint8", "uint8", 255, integer=True),
    _element("int16", "int16", "int16", 2**15 - 1, integer=True),
    _element("uint16", "uint16", "uint16", 2**16 - 1, integer=True),
    _element("int32", "int32", "int32", 2**31 - 1, integer=True),
    _element("uint32", "uint32", "uint32", 2**32 - 1, integer=True),
    _element("int64", "int64", "int64", 2**62, integer=True),
    _element("uint64", "uint64", "uint64", 2**62, integer=True),
    _element("half", "float16", "float16", 2**11),
    _element("float", "float32", "float32", 2**24),
    _element("double", "float64", "float64", 2**53),
    _element("bfloat16", "bfloat16", "uint16", 2**8, numpy_native=False),
    _element("f8e4m3", "float8_e4m3fn", "uint8", 2**4, numpy_native=False),
    _element("f8e5m2", "float8_e5m2", "uint8", 2**3, numpy_native=False),
)
ELEMENTS: Mapping[str, Element] = MappingProxyType({element.name: element for element in _ELEMENTS})
ALIASES: Mapping[str, str] = MappingProxyType(
    {element.torch: element.name for element in _ELEMENTS if element.torch != element.name}
)

"""The current GPU stream of an array's library. Streams are represented by their handles, as numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from syntony.collectives.buffers import UsageError


def current_stream(array: Any, device: int) -> int | None:
    """The stream on which the array's library queues work, else the one that the array names; None without either."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        return int(torch.cuda.current_stream(device).cuda_stream)
    if cupy is not None and isinstance(array, cupy.ndarray):
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    stream: int | None = array.__cuda_array_interface__.get("stream")
    return stream


@contextmanager
def at_stream(array: Any, device: int, stream: int) -> Iterator[None]:
    """Makes the array's library queue its work there for a while. UsageError for an unsupported library."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
            yield
    elif cupy is not None and isinstance(array, cupy.ndarray):
        with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
            yield
    else:
        raise UsageError(
            f"avg with async_op divides beside the current stream, which arrays of torch and cupy can, and no "
            f"{type(array).__name__}; leave one of the two out"
        )

"""A Communicator over NumPy arrays of bytes: what the tests call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syntony import _core

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Group:
    """One rank's end of a group. Buffers are kept alive until their operation is done."""

    def __init__(self, communicator: _core.Communicator) -> None:
        self.raw = communicator
        self.rank, self.size = communicator.rank, communicator.size

    def run(
        self,
        collective: str,
        dtype: str,
        sizes: Sequence[int],
        inputs: Mapping[int, Bytes],
        outputs: Mapping[int, Bytes],
        **options: Any,
    ) -> Any:
        """`sizes`: elements of every block; `inputs` and `outputs`: bytes of the blocks that this rank has. Gives a
        Work where `async_op`, else None."""
        blocks = [
            (inputs[b].ctypes.data if b in inputs else 0, outputs[b].ctypes.data if b in outputs else 0, size)
            for b, size in enumerate(sizes)
        ]
        kept = (tuple(inputs.values()), tuple(outputs.values()))
        return self.raw.run(collective=collective, dtype=dtype, blocks=blocks, keep_alive=kept, **options)

    def all_reduce(self, array: np.ndarray, **options: Any) -> Any:
        """In place."""
        data = array.view(np.uint8)
        return self.run("all_reduce", str(array.dtype), [array.size], {0: data}, {0: data}, **options)

    def broadcast(self, array: np.ndarray, root: int = 0, **options: Any) -> Any:
        data = array.view(np.uint8)
        own = {0: data} if self.rank == root else {}
        return self.run("broadcast", str(array.dtype), [array.size], own, {0: data}, root=root, **options)

    def send(self, array: np.ndarray, destination: int, tag: int = 0, **options: Any) -> _core.Work:
        return self.raw.send(array.ctypes.data, array.nbytes, destination, tag, keep_alive=array, **options)

    def receive(self, array: np.ndarray, source: int, tag: int = 0, **options: Any) -> _core.Work:
        return self.raw.receive(array.ctypes.data, array.nbytes, source, tag, keep_alive=array, **options)

    def barrier(self, **options: Any) -> Any:
        return self.raw.barrier(**options)

    def shutdown(self) -> None:
        self.raw.shutdown()


def failure_of(call: Any) -> tuple[str, tuple[int, ...], str, float]:
    """Kind, guilty ranks, sentence and seconds of the CommunicationError that `call()` raises."""
    began = time.monotonic()
    try:
        call()
    except _core.CommunicationError as error:
        return error.kind, error.ranks, str(error), time.monotonic() - began
    raise AssertionError("nothing was raised")

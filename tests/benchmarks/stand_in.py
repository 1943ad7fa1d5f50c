"""A Communicator made of the exchange alone: slow, plain NumPy, and independent of everything that is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from syntony.collectives.bootstrap.launch import Exchange

_REDUCERS: dict[str, Callable[..., Any]] = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}


class StandIn:
    """Every collective is an all_gather of what ranks send, and arithmetic."""

    def __init__(self, exchange: Exchange, timeout: float = 60.0) -> None:
        self._exchange = exchange
        self._calls = 0
        self.rank, self.size = exchange.rank, exchange.size
        self.timeout = timeout

    def _everybody(self, buffer: Any) -> list[Any]:
        self._calls += 1
        blob = b"" if buffer is None else buffer.tobytes()
        blobs = self._exchange.all_gather(f"stand-in {self._calls}", blob)
        dtype = np.uint8 if buffer is None else buffer.dtype
        return [np.frombuffer(blob, dtype if blob else np.uint8) for blob in blobs]

    def _reduced(self, buffer: Any, op: str) -> Any:
        parts = self._everybody(buffer)
        if op == "avg":
            return (sum(part.astype(np.float64) for part in parts) / self.size).astype(buffer.dtype)
        result = parts[0].copy()
        for part in parts[1:]:
            result = _REDUCERS[op](result, part)
        return result

    def all_reduce(self, input: Any, output: Any = None, op: str = "sum", *, algorithm: str = "auto") -> None:
        (input if output is None else output)[:] = self._reduced(input, op)

    def all_gather(self, input: Any, output: Any, *, algorithm: str = "auto") -> None:
        output[:] = np.concatenate(self._everybody(input))

    def reduce_scatter(self, input: Any, output: Any, op: str = "sum", *, algorithm: str = "auto") -> None:
        output[:] = np.split(self._reduced(input, op), self.size)[self.rank]

    def all_to_all(self, input: Any, output: Any, *, algorithm: str = "auto") -> None:
        output[:] = np.concatenate([np.split(part, self.size)[self.rank] for part in self._everybody(input)])

    def broadcast(self, buffer: Any, root: int = 0, *, algorithm: str = "auto") -> None:
        buffer[:] = self._everybody(buffer)[root]

    def reduce(
        self, input: Any, output: Any = None, root: int = 0, op: str = "sum", *, algorithm: str = "auto"
    ) -> None:
        result = self._reduced(input, op)
        if self.rank == root:
            output[:] = result

    def gather(self, input: Any, output: Any = None, root: int = 0, *, algorithm: str = "auto") -> None:
        parts = self._everybody(input)
        if self.rank == root:
            output[:] = np.concatenate(parts)

    def scatter(self, input: Any, output: Any, root: int = 0, *, algorithm: str = "auto") -> None:
        parts = np.split(self._everybody(input)[root].view(output.dtype), self.size)
        output[:] = parts[self.rank]

    def send(self, buffer: Any, destination: int, *, async_op: bool = False) -> StandIn:
        self._sent = (buffer, destination)
        return self

    def recv(self, buffer: Any, source: int) -> None:
        buffer[:] = self._everybody(self._sent[0])[source]

    def wait(self) -> None:
        """A send is over when it has been received."""

    def barrier(self) -> None:
        self._everybody(None)

    def load(self, path: Path) -> str:
        return path.stem

    def close(self) -> None:
        pass


class OffByOne(StandIn):
    """Gets the last element of rank 1's all_reduce wrong."""

    def all_reduce(self, input: Any, output: Any = None, op: str = "sum", *, algorithm: str = "auto") -> None:
        super().all_reduce(input, output, op)
        if self.rank == 1:
            (input if output is None else output)[-1] += 1


class Overrun(StandIn):
    """Writes one byte behind the receive buffer."""

    def all_gather(self, input: Any, output: Any, *, algorithm: str = "auto") -> None:
        super().all_gather(input, output)
        end = output.ctypes.data + output.nbytes
        (np.ctypeslib.as_array(_byte_at(end), (1,)))[0] = 0


def _byte_at(address: int) -> Any:
    import ctypes

    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))

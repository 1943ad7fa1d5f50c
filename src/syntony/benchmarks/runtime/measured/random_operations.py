"""Random collectives and messages whose results are known: what the tables `kill` and `soak` run.

All ranks draw from generators with the same seed, so they make the same calls in the same order, and each knows what
to expect.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from syntony.collectives.communicator import Communicator

_DTYPES = ("int64", "float32", "uint8", "float64")
_MOST_ELEMENTS = 60_000


class WrongResultError(AssertionError):
    """A collective that went through and left the wrong numbers."""


def random_operation(group: Communicator, rng: random.Random) -> None:
    """One operation, checked. Collective: every rank passes a generator in the same state. Raises WrongResultError."""
    size = rng.choice((1, 2, 7, 1000, rng.randrange(1, _MOST_ELEMENTS)))
    rng.choice(_OPERATIONS)(group, size, np.dtype(rng.choice(_DTYPES)), rng.randrange(group.size))


def _require(array: np.ndarray, expected: Any, what: str) -> None:
    if not np.array_equal(array, np.broadcast_to(expected, array.shape)):
        raise WrongResultError(f"{what} of {array.size} x {array.dtype} left {array[:4]}.., not {expected}")


def _all_reduce(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    array = np.full(size, group.rank + 1, dtype)
    group.all_reduce(array)
    _require(array, group.size * (group.size + 1) // 2, "all_reduce")


def _all_gather(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    output = np.zeros((group.size, size), dtype)
    group.all_gather(np.full(size, group.rank + 1, dtype), output)
    _require(output.T, np.arange(1, group.size + 1), "all_gather")


def _reduce_scatter(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    output = np.zeros(size, dtype)
    group.reduce_scatter(np.repeat(np.arange(group.size), size).astype(dtype), output)
    _require(output, group.rank * group.size, "reduce_scatter")


def _all_to_all(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    output = np.zeros((group.size, size), dtype)
    group.all_to_all(np.repeat(np.arange(group.size) + 2 * group.rank, size).astype(dtype), output)
    _require(output.T, 2 * np.arange(group.size) + group.rank, "all_to_all")


def _broadcast(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    array = np.full(size, group.rank, dtype)
    group.broadcast(array, root)
    _require(array, root, "broadcast")


def _barrier(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    group.barrier()


def _messages(group: Communicator, size: int, dtype: np.dtype, root: int) -> None:
    """To the right and from the left, under a tag."""
    left, right = (group.rank - 1) % group.size, (group.rank + 1) % group.size
    array = np.zeros(size, dtype)
    going = group.send(np.full(size, group.rank, dtype), right, tag=root, async_op=True)
    group.recv(array, left, tag=root)
    assert going is not None
    going.wait()
    _require(array, left, "a message")


_OPERATIONS: tuple[Callable[[Communicator, int, np.dtype, int], None], ...] = (
    _all_reduce, _all_reduce, _all_gather, _reduce_scatter, _all_to_all, _broadcast, _barrier, _messages,
)  # fmt: skip

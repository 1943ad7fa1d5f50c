"""Lets the ranks of a group take a step together that may fail on some of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from syntony import _core


def executor() -> Any:
    """syntony._cuda. RuntimeError if it was not built or there is no GPU."""
    try:
        from syntony import _cuda
    except ImportError as error:
        raise RuntimeError(
            f"arrays on GPUs need the CUDA executor, which was not built here (make cuda, with nvcc): {error}"
        ) from None
    if _cuda.device_count() == 0:
        raise RuntimeError("arrays on GPUs need a CUDA GPU and its driver; this process sees none")
    return _cuda


def agreed(group: _core.Communicator, step: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of a step, by rank; RuntimeError on all ranks if it fails on any of them."""
    try:
        mine = step()
    except (RuntimeError, ValueError) as error:
        mine = {"trouble": str(error)}
    told = [json.loads(said) for said in _gathered(group, json.dumps(mine).encode())]
    for rank, said in enumerate(told):
        if "trouble" in said:
            raise RuntimeError(f"rank {rank}: {said['trouble']}")
    return told


def _gathered(group: _core.Communicator, mine: bytes) -> list[bytes]:
    """The bytes of all ranks, by rank; each may be padded with spaces."""

    def gather(part: Any, whole: Any) -> None:
        if not group.run_even("all_gather", part, whole, "sum", {}):
            raise AssertionError("plain arrays are taken")

    lengths = np.zeros(group.size, np.int64)
    gather(np.array([len(mine)], np.int64), lengths)
    longest = int(lengths.max())
    everybody = np.zeros((group.size, longest), np.uint8)
    gather(np.frombuffer(bytearray(mine.ljust(longest)), np.uint8), everybody)
    return [row.tobytes() for row in everybody]

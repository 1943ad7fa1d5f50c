"""How the ranks of a group take a step together that one of them may be unable to take."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from syntony import _core


def executor() -> Any:
    """syntony._cuda; RuntimeError where it was not built or there is no GPU."""
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
    """What all ranks say after a step, by rank; RuntimeError, at all of them, when one could not take it."""
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
    """Everybody's bytes, by rank; spaces may follow."""

    def gather(part: Any, whole: Any) -> None:
        if not group.run_even("all_gather", part, whole):
            raise AssertionError("plain arrays are taken")

    lengths = np.zeros(group.size, np.int64)
    gather(np.array([len(mine)], np.int64), lengths)
    longest = int(lengths.max())
    everybody = np.zeros((group.size, longest), np.uint8)
    gather(np.frombuffer(bytearray(mine.ljust(longest)), np.uint8), everybody)
    return [row.tobytes() for row in everybody]

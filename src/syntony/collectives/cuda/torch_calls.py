"""What the torch backend calls on a CudaGroup (csrc/torch/device/executor_calls.cpp), on torch's current stream."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from syntony import _core
from syntony.collectives.bootstrap import process
from syntony.collectives.calls import Block
from syntony.collectives.cuda.call import Call
from syntony.collectives.cuda.group import DIVIDED, CudaGroup

Described = tuple[str, str, int, Sequence[Block], bool, str, str]
"""A collective: its name, op, root, blocks, whether every rank knows all sizes; the element type; the algorithm."""


def form(group: object, device: int) -> CudaGroup | None:
    """The kernels of a group (a capsule) on a GPU; None at all ranks if any of them cannot take part. Collective."""
    core = _core.Communicator.of_capsule(process.current(), group)
    try:
        return CudaGroup(core, device)
    except _core.CommunicationError:
        raise
    except RuntimeError as reason:
        if core.rank == 0:
            logging.getLogger(__name__).info("tensors on GPUs go through the host's memory: %s", reason)
        return None


def takes(group: CudaGroup, described: Described, average: bool) -> bool:
    """Whether launch() supports it; all ranks return the same."""
    call, dtype = _call(described)
    return not (average and dtype not in DIVIDED) and group.takes(call, dtype)


def launch(group: CudaGroup, described: Described, seconds: float) -> None:
    """Queues it on torch's current stream of the group's GPU."""
    call, dtype = _call(described)
    group.launch(call, dtype, seconds, int(torch.cuda.current_stream(group.device).cuda_stream))


def _call(described: Described) -> tuple[Call, str]:
    collective, op, root, blocks, even, dtype, algorithm = described
    return Call(collective, op, root, blocks, even, algorithm), dtype

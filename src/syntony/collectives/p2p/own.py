"""Runs `syntony.over` on a torch group of our own backend: the same proven schedules, in Syntony's executor.

Messages posted one by one through torch cannot be as fast as the executor. So `syntony.over(group)` uses the executor
if there is one. Results are bit for bit those of the messages.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.collectives.communicator import Communicator
from syntony.collectives.torch_backend.backend import communicator_of
from syntony.collectives.verbs import Work
from syntony.synth.checker.proofs import digest
from syntony.synth.model.program import Program

OPS: dict[Any, str] = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
_NUMPY = frozenset(
    (torch.float32, torch.float64, torch.float16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
)


class OwnGroup:
    """Runs proven Programs on a group of our backend."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._names: set[str] = set()

    def load(self, program: Program) -> str:
        """Loads a proven Program and returns the executor's name for it."""
        name = f"{program.name} {digest(program)[:16]}"
        if name not in self._names:
            self._communicator._core.add_program(name, program)
            self._names.add(name)
        return name

    def run(
        self, collective: str, given: Tensor, wanted: Tensor, op: Any, algorithm: str, *, async_op: bool
    ) -> Work | None:
        """Runs a loaded Program, a built-in algorithm, or `auto`; both tensors are contiguous."""
        verb = getattr(self._communicator, collective)
        options = {"algorithm": algorithm, "async_op": True} if async_op else {"algorithm": algorithm}
        source = _array(given, collective)
        target = source if given is wanted else _array(wanted, collective)
        if collective in ("all_reduce", "reduce_scatter"):
            if op not in OPS:
                raise ValueError(f"{op} is not supported; sums are {', '.join(str(known) for known in OPS)}")
            return verb(source, target, OPS[op], **options)  # type: ignore[no-any-return]
        return verb(source, target, **options)  # type: ignore[no-any-return]


def _array(tensor: Tensor, collective: str) -> Any:
    """The tensor's memory as a NumPy array if NumPy has its type; calls take that several times faster."""
    if tensor.dtype in _NUMPY:
        return tensor.detach().numpy()
    if collective in ("all_gather", "all_to_all") and tensor.element_size() == 2:
        return tensor.detach().view(torch.int16).numpy()
    return tensor


def own_group(group: dist.ProcessGroup) -> OwnGroup | None:
    """The executor under a torch group; None if its CPU backend is not ours."""
    try:
        return OwnGroup(communicator_of(group))
    except RuntimeError:
        return None

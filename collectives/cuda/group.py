"""A group's GPU side: collectives on arrays in GPU memory, by the CUDA executor (csrc/cuda).

    verbs ── arrays on GPUs ──▶ CudaGroup.run ── Program, Plan ──▶ Executor.launch on the caller's stream
                                    │ once, at the first call
                                    └─ every rank's arena by CUDA IPC, told over the group itself

It is formed at a group's first call with GPU arrays, by all ranks. A call returns when its kernel is in the current
stream of the library that the array is of, as with NCCL; work behind it in the stream sees the result. Messages go
through FIFOs in the arenas, so no call exchanges addresses, and any stream order is right that is alike at all ranks.

Not done, and said by name: ranks on several hosts, priorities and parts, factors, messages, loaded schedules. An
average is rounded twice, as a sum and when it is divided; the CPU's is rounded once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives.buffers import Buffer, UsageError
from csrc import _core
from csrc._core import CommunicationError

Block = tuple[int, int, int]
Gather = Callable[[bytes], list[bytes]]
"""Everybody's bytes, by rank."""

# Where these lie has been measured on no GPU.
ONE_SHOT_BYTES = 1 << 18
"""Up to here every rank sums everything (`direct`); beyond, its share (`two_shot`)."""
LOW_LATENCY_BYTES = 1 << 15
"""Up to here a message's words carry their own flags (`ll`), which takes half of the bandwidth."""

DIVIDED = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
"""What arrays on GPUs can divide."""


@dataclass(frozen=True)
class Call:
    """One collective. `blocks` as in Verbs._run; `even`: every rank knows all sizes."""

    collective: str
    op: str
    root: int
    blocks: Sequence[Block]
    even: bool
    algorithm: str


def executor() -> Any:
    """csrc._cuda; RuntimeError where it was not built or there is no GPU."""
    try:
        from csrc import _cuda
    except ImportError as error:
        raise RuntimeError(
            f"arrays on GPUs need the CUDA executor, which was not built here (make cuda, with nvcc): {error}"
        ) from None
    if _cuda.device_count() == 0:
        raise RuntimeError("arrays on GPUs need a CUDA GPU and its driver; this process sees none")
    return _cuda


class CudaGroup:
    """One rank's. Not for several threads at once."""

    def __init__(self, rank: int, boxes: Sequence[Sequence[int]], device: int, gather: Gather) -> None:
        """Collective. RuntimeError where a rank cannot take part; it is raised at all ranks."""
        size = sum(map(len, boxes))
        self._cuda: Any = None
        self._executor: Any = None
        mine: dict[str, Any] = {"pid": os.getpid(), "gpu": _physical(device)}
        try:
            if len(boxes) > 1:
                raise RuntimeError(f"arrays on GPUs are moved within one host; the group is on {len(boxes)}")
            self._cuda = executor()
        except RuntimeError as error:
            mine["trouble"] = str(error)
        told = _agreed(gather, mine)
        shape = self._cuda.ArenaShape(size)
        sharing = sum(other["gpu"] == mine["gpu"] for other in told)
        self._executor = self._cuda.Executor(device, rank, shape, sharing)
        exported = self._cuda.export_memory(self._executor.arena).hex()
        told = _agreed(gather, mine | {"address": self._executor.arena, "exported": exported})
        self._imported = {
            other: self._cuda.ImportedMemory(device, bytes.fromhex(said["exported"]))
            for other, said in enumerate(told)
            if said["pid"] != os.getpid()
        }
        self._executor.connect(
            [
                self._imported[other].address if other in self._imported else said["address"]
                for other, said in enumerate(told)
            ]
        )
        self.rank, self.size, self.device = rank, size, device
        self._plans: dict[tuple[Any, ...], Any] = {}

    def run(self, call: Call, buffers: Sequence[Buffer], average: bool, seconds: float) -> None:
        """Queues it on the current stream. `average`: an output is divided by the ranks, in the same stream.

        CommunicationError when an earlier call was given up; the group must then be made anew.
        """
        if any(buffer.device != self.device for buffer in buffers):
            raise UsageError(
                f"{call.collective} got arrays on {_places(buffers)}; rank {self.rank} uses GPU {self.device}"
            )
        target = buffers[-1]
        if average and target.dtype not in DIVIDED:
            raise UsageError(f"avg of {target.dtype} is not done on GPUs; possible are {', '.join(DIVIDED)}")
        self._check()
        plan = self._plan(call, buffers[0])
        pointers = [
            call.blocks[block][space] if space < 2 and rank == self.rank else 0 for rank, space, block in plan.bases
        ]
        self._executor.set_timeout(seconds)
        self._executor.launch(plan, pointers, current_stream(target.owner, self.device))
        if average and any(output for _, output, _ in call.blocks):
            target.owner.__itruediv__(self.size)

    def _plan(self, call: Call, buffer: Buffer) -> Any:
        elements = tuple(size for _, _, size in call.blocks)
        size = max(elements, default=0) * buffer.itemsize
        name = call.algorithm
        if name == "auto":
            name = "two_shot" if call.collective == "all_reduce" and size > ONE_SHOT_BYTES else "direct"
        protocol = "ll" if call.even and size <= LOW_LATENCY_BYTES else "simple"
        key = (call.collective, call.op, call.root, elements, buffer.dtype, name, protocol)
        if key not in self._plans:
            known = {each.name for each in _core.algorithms() if call.collective in each.collectives}
            if name not in known:
                raise UsageError(
                    f"{name!r} does not run {call.collective} on GPUs; possible are {', '.join(sorted(known))}"
                )
            program = _core.build(name, call.collective, self.size, call.root, None)
            self._plans[key] = self._cuda.Plan(
                self._executor, program, buffer.dtype, call.op, list(elements), protocol=protocol
            )
        return self._plans[key]

    def _check(self) -> None:
        trouble = self._executor.trouble()
        if trouble is not None:
            waited = "another lane" if trouble["peer"] is None else f"rank {trouble['peer']}"
            raise CommunicationError(
                f"rank {self.rank}: an earlier collective on GPU {self.device} was {trouble['kind']} at lane "
                f"{trouble['lane']}, instruction {trouble['instruction']}, waiting for {waited}; make the group anew"
            )


def current_stream(array: Any, device: int) -> int:
    """The stream that the array's library is at, as an integer; CUDA's default stream where that is not known."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return int(torch.cuda.current_stream(device).cuda_stream)
    cupy = sys.modules.get("cupy")
    return int(cupy.cuda.get_current_stream(device).ptr) if cupy is not None else 0


def _physical(device: int) -> str:
    """What all processes of the host call the GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else []
    return names[device].strip() if device < len(names) else str(device)


def _places(buffers: Sequence[Buffer]) -> str:
    return " and ".join(sorted({f"GPU {b.device}" if b.device >= 0 else "the CPU" for b in buffers}))


def _agreed(gather: Gather, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What all ranks say; RuntimeError, at all of them, when one cannot."""
    told = [json.loads(said) for said in gather(json.dumps(mine).encode())]
    for rank, said in enumerate(told):
        if "trouble" in said:
            raise RuntimeError(f"rank {rank}: {said['trouble']}")
    return told


def gather_bytes(all_gather: Callable[[Any, Any], Any], size: int) -> Gather:
    """A Gather over a group's own all_gather of NumPy arrays."""

    def gather(said: bytes) -> list[bytes]:
        lengths = np.zeros(size, np.int64)
        all_gather(np.array([len(said)], np.int64), lengths)
        longest = int(lengths.max())
        padded = np.frombuffer(said.ljust(longest, b" "), np.uint8)
        everybody = np.zeros(size * longest, np.uint8)
        all_gather(padded, everybody)
        return [everybody[rank * longest : (rank + 1) * longest].tobytes() for rank in range(size)]

    return gather

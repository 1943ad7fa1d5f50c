"""A group's GPU side: collectives on arrays in GPU memory, by the CUDA executor (csrc/cuda).

    verbs ── arrays on GPUs ──▶ CudaGroup.run ── Program, Plan ──▶ Executor.launch on the caller's stream
                                    │ once, at the first call
                                    └─ every rank's arena by CUDA IPC, told over a group of its own (`control`)

It is formed at a group's first call with GPU arrays, by all ranks. A call returns when its kernel is in the current
stream of the library that the array is of, as with NCCL; work behind it in the stream sees the result. Messages go
through FIFOs in the arenas, so no call exchanges addresses, and any stream order is right that is alike at all ranks.

What goes wrong is heard of later: by the next call, or close(). A kernel that waits for longer than the timeout ends,
and the next call names whom it waited for and tells all ranks. A rank that dies or aborts ends the kernels of all:
`control` has a receive posted that nobody answers, which is over when a peer is lost.

The torch backend launches on a stream of its own and asks what is taken (torch_calls.py).

Not done, and said by name: ranks on several hosts, priorities and parts, factors, messages, loaded schedules. An
average is rounded twice, as a sum and when it is divided; the CPU's is rounded once. Plans are kept for as long as the
group, since graphs may hold them: calls of ever new sizes fill the GPU's memory.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.buffers import Buffer, UsageError
from csrc import _core
from csrc._core import CommunicationError

Block = tuple[int, int, int]

# Where these lie has been measured on no GPU.
ONE_SHOT_BYTES = 1 << 18
"""Up to here every rank sums everything (`direct`); beyond, its share (`two_shot`)."""
LOW_LATENCY_BYTES = 1 << 15
"""Up to here a message's words carry their own flags (`ll`), which takes half of the bandwidth."""

_FOR_EVER = 1e9
"""Seconds."""
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


class _Shape(NamedTuple):
    """What calls have in common that one Plan serves."""

    collective: str
    op: str
    root: int
    elements: tuple[int, ...]
    dtype: str
    algorithm: str
    protocol: str

    @staticmethod
    def of(call: Call, dtype: str) -> _Shape:
        elements = tuple(size for _, _, size in call.blocks)
        size = max(elements, default=0) * _core.itemsize(dtype)
        name = call.algorithm
        if name == "auto":
            name = "two_shot" if call.collective == "all_reduce" and size > ONE_SHOT_BYTES else "direct"
        protocol = "ll" if call.even and size <= LOW_LATENCY_BYTES else "simple"
        return _Shape(call.collective, call.op, call.root, elements, dtype, name, protocol)

    def program(self, ranks: int) -> _core.Program:
        known = {each.name for each in _core.algorithms() if self.collective in each.collectives}
        if self.algorithm not in known:
            raise UsageError(
                f"{self.algorithm!r} does not run {self.collective} on GPUs; possible are {', '.join(sorted(known))}"
            )
        return _core.build(self.algorithm, self.collective, ranks, self.root, None)


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

    def __init__(self, group: _core.Communicator, device: int) -> None:
        """Collective. RuntimeError where a rank cannot take part; it is raised at all ranks."""
        self.rank, self.size, self.device = group.rank, group.size, device
        control = group.split(0, group.rank, 0.0, "of GPUs")
        assert control is not None, "only ranks without a color get no group"
        self._control = control
        self._plans: dict[_Shape, Any] = {}
        self._taken: dict[_Shape, bool] = {}
        self._launched = 0
        self._latest: deque[str] = deque(maxlen=1024)
        self._told = False  # somebody has heard of what went wrong
        self._executor: Any = None
        self._watch: _core.Work | None = None
        try:
            self._form()
        except BaseException:
            control.shutdown()
            raise

    def _form(self) -> None:
        cuda: Any = None

        def here() -> dict[str, Any]:
            nonlocal cuda
            hosts = len(self._control.boxes)
            if hosts > 1:
                raise RuntimeError(f"arrays on GPUs are moved within one host; the group is on {hosts}")
            cuda = executor()
            return {"process": _process(os.getpid()), "gpu": cuda.describe(self.device)["pci"]}

        at = _agreed(self._control, here)
        mine = at[self.rank]
        sharing = sum(other["gpu"] == mine["gpu"] for other in at)

        def exported() -> dict[str, Any]:
            self._arena_shape = cuda.ArenaShape(self.size)
            self._executor = cuda.Executor(self.device, self.rank, self._arena_shape, sharing)
            arena = self._executor.arena
            handle = cuda.export_memory(arena).hex() if any(other["process"] != mine["process"] for other in at) else ""
            return {"arena": arena, "handle": handle, "blocks": self._executor.blocks}

        told = _agreed(self._control, exported)
        self._imported: dict[int, Any] = {}

        def connected() -> dict[str, Any]:
            for rank, (there, said) in enumerate(zip(at, told, strict=True)):
                if there["process"] != mine["process"]:
                    self._imported[rank] = cuda.ImportedMemory(self.device, bytes.fromhex(said["handle"]))
            self._executor.connect(
                [
                    self._imported[rank].address if rank in self._imported else said["arena"]
                    for rank, said in enumerate(told)
                ]
            )
            return {}

        _agreed(self._control, connected)
        self._cuda = cuda
        self._blocks = min(said["blocks"] for said in told)  # how a Program is cut must be the same at all ranks
        if self.size > 1:
            self._watch = self._control.receive(0, 0, -1, timeout=_FOR_EVER, async_op=True)
            self._watch.on_done(self._executor.abort)

    def run(self, call: Call, buffers: Sequence[Buffer], average: bool, seconds: float) -> None:
        """Queues it on the current stream. `average`: an output is divided by the ranks, in the same stream. `seconds`:
        how long the kernel may wait for peers.

        CommunicationError when a rank is lost or an earlier call was given up; the group must then be made anew.
        """
        if any(buffer.device != self.device for buffer in buffers):
            raise UsageError(
                f"{call.collective} got arrays on {_places(buffers)}; rank {self.rank} uses GPU {self.device}"
            )
        target = buffers[-1]
        if average and target.dtype not in DIVIDED:
            raise UsageError(f"avg of {target.dtype} is not done on GPUs; possible are {', '.join(DIVIDED)}")
        if average and not hasattr(target.owner, "__itruediv__"):
            raise UsageError(
                f"avg on GPUs divides in place, which a {type(target.owner).__name__} cannot; sum and divide"
            )
        self.launch(call, target.dtype, seconds, current_stream(target.owner, self.device))
        if average and any(output for _, output, _ in call.blocks):
            # A tensor that wants gradients refuses it; what it shares its memory with does not.
            array = target.owner.detach() if hasattr(target.owner, "detach") else target.owner
            array /= self.size

    def launch(self, call: Call, dtype: str, seconds: float, stream: int) -> None:
        """As run(), for blocks of `dtype` on this group's GPU and a stream by its handle."""
        self.check()
        plan = self._plan(call, dtype)
        pointers = [
            call.blocks[block][space] if space < 2 and rank == self.rank else 0 for rank, space, block in plan.bases
        ]
        self._executor.set_timeout(seconds)
        self._executor.launch(plan, pointers, stream)
        self._launched += 1
        elements = sum(size for _, _, size in call.blocks)
        self._latest.append(f"{call.collective} #{self._launched} ({elements} x {dtype})")

    def takes(self, call: Call, dtype: str) -> bool:
        """Whether a Plan can be made of it at every rank: all ranks say the same."""
        shape = _Shape.of(call, dtype)
        if shape not in self._taken:
            try:
                program = shape.program(self.size)
                for rank in range(self.size):
                    self._cuda.lowered(
                        program, rank, dtype, call.op, shape.elements, self._arena_shape, shape.protocol, self._blocks
                    )
                self._taken[shape] = True
            except ValueError:
                self._taken[shape] = False
        return self._taken[shape]

    def _plan(self, call: Call, dtype: str) -> Any:
        shape = _Shape.of(call, dtype)
        if shape not in self._plans:
            program = shape.program(self.size)
            self._plans[shape] = self._cuda.Plan(
                self._executor, program, dtype, call.op, shape.elements, protocol=shape.protocol, blocks=self._blocks
            )
        return self._plans[shape]

    def check(self) -> None:
        """Raises what has gone wrong so far, with operation and ranks, and sees to it that all ranks hear of it."""
        trouble = self._executor.trouble()
        lost = self._watch is not None and self._watch.done
        if trouble is None and not lost:
            return
        self._told = True
        operation = self._operation(trouble)
        if trouble is not None and trouble["kind"] == "timed out":
            peer = trouble["peer"]
            where = f"lane {trouble['lane']}, instruction {trouble['instruction']}"
            why = f"{operation} timed out at {where}, waiting for {'itself' if peer is None else f'rank {peer}'}"
            self._control.abort(f"rank {self.rank}: {why}")
            raise _failure(self._sentence(why), "timeout", () if peer is None else (peer,))
        try:
            assert self._watch is not None, "only the watch aborts"
            self._watch.wait()
        except CommunicationError as error:
            why = f"{operation} was ended: {error}"
            if error.kind == "dead":
                why = f"rank {error.ranks[0]} died, and {operation} was the last"
            raise _failure(self._sentence(why), error.kind, error.ranks) from None

    def abort(self, why: str) -> None:
        """Ends the kernels of all ranks."""
        self._told = True
        self._control.abort(why)

    def close(self) -> None:
        """Waits for what was launched, and for the other ranks to close. CommunicationError for what went wrong and
        nobody was told."""
        try:
            self._executor.wait()
            if not self._told:
                self.check()
                self._control.barrier()  # nobody's kernel writes any more,
                self._imported.clear()
                self._control.barrier()  # and nobody holds what is now freed
        except CommunicationError:
            if not self._told:
                self.check()  # which knows the operation
            raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Ends this rank's kernels, without the others."""
        self._executor.abort()
        self._executor.wait()
        self._imported.clear()
        self._control.shutdown()

    def _operation(self, trouble: dict[str, Any] | None) -> str:
        number = self._launched if trouble is None else trouble["launch"]
        back = self._launched - number
        return self._latest[-1 - back] if 0 <= back < len(self._latest) else f"operation #{number}"

    def _sentence(self, why: str) -> str:
        return f"rank {self.rank}, on GPU {self.device}: {why}; make the group anew"


def current_stream(array: Any, device: int) -> int:
    """The stream that the array's library is at, or, where that is not known, the array says; CUDA's default stream
    where it does not."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        return int(torch.cuda.current_stream(device).cuda_stream)
    if cupy is not None and isinstance(array, cupy.ndarray):
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return int(array.__cuda_array_interface__.get("stream") or 0)


@cache
def _process(number: int) -> str:
    """A name that no other process has, in whatever container it is."""
    return f"{number} {secrets.token_hex(8)}"


def _failure(sentence: str, kind: str, ranks: tuple[int, ...]) -> CommunicationError:
    error = CommunicationError(sentence)
    error.kind, error.ranks = kind, ranks
    return error


def _places(buffers: Sequence[Buffer]) -> str:
    return " and ".join(sorted({f"GPU {b.device}" if b.device >= 0 else "the CPU" for b in buffers}))


def _agreed(group: _core.Communicator, step: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
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
        if not group.run_even("all_gather", part, whole, "sum", "auto", False, None):
            raise AssertionError("plain arrays are taken")

    lengths = np.zeros(group.size, np.int64)
    gather(np.array([len(mine)], np.int64), lengths)
    longest = int(lengths.max())
    everybody = np.zeros((group.size, longest), np.uint8)
    gather(np.frombuffer(bytearray(mine.ljust(longest)), np.uint8), everybody)
    return [row.tobytes() for row in everybody]

"""A group's GPU side: collectives on arrays in GPU memory, by the CUDA executor (csrc/cuda).

    verbs ── arrays on GPUs ──▶ CudaGroup.run ── Program, Plan ──▶ Executor.launch on the caller's or a side stream
                                    │ once, at the first call
                                    └─ exchange of every rank's arena by CUDA IPC, over a separate group (`control`)

All ranks form it at a group's first call with GPU arrays. A call returns when its kernel is queued on the current
stream of the array's library, as with NCCL; later work on the stream sees the result. Messages go through FIFOs in the
arenas, so calls exchange no addresses, and any stream order works that is the same at all ranks.

With `async_op` the kernel runs on a stream of the group, after the work on the caller's stream at the call, and the
caller's stream waits when wait() is called (stream_future.py). Programs are those of the CPU, including loaded ones and
the tuner's choices, except that `shared` (host memory) becomes `direct` or, for large sums, `two_shot`. A Program that
cannot be lowered at some rank is refused at all.

Errors are reported later: by the next call, a wait, or close(). A kernel that waits for longer than the timeout ends;
the rank that observes this names the peer that it waited for and tells all ranks. If a rank dies or aborts, the kernels
of all ranks end: `control` has a posted receive that is never answered and that fails when a peer is lost.

The torch backend launches on its own stream and asks which calls are supported (torch_calls.py).

Ranks on several hosts use staging.py. Not supported, each with its own error: priorities and parts, factors, messages,
`async_op` in a graph. An average is rounded twice, as a sum and after the division; on the CPU it is rounded once.
Plans live as long as the group, since graphs may refer to them: calls with ever new sizes fill the GPU's memory.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from syntony import _core
from syntony._core import CommunicationError
from syntony.collectives.buffers import Buffer, UsageError
from syntony.collectives.calls import Block
from syntony.collectives.cuda import forming
from syntony.collectives.cuda.call import Call
from syntony.collectives.cuda.forming import agreed
from syntony.collectives.cuda.stream_future import Held, StreamFuture
from syntony.collectives.cuda.streams import at_stream, current_stream

# These thresholds have not been measured on a GPU.
ONE_SHOT_BYTES = 1 << 18
"""Up to this size every rank sums everything (`direct`); beyond, only its share (`two_shot`)."""
LOW_LATENCY_BYTES = 1 << 15
"""Up to this size the words of a message carry their own flags (`ll`), which takes half of the bandwidth."""
CHANNELS = 32
"""The same as a schedule may use on the CPU (synth/model/target.py)."""
SLOT_BYTES = 128 << 10

_ALIGNMENT = 128
_NAMES: dict[int, str] = {}
"""By process id, since a forked process needs another name. If threads race to fill it, the first wins for all."""
_FOR_EVER = 1e9
"""Seconds: in effect, no timeout."""
DIVIDED = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
"""Types that arrays on GPUs can divide."""


class _Shape(NamedTuple):
    """What calls must have in common to share one Plan."""

    collective: str
    op: str
    root: int
    elements: tuple[int, ...]
    dtype: str
    program: int
    """Its hash, since another program may be loaded under the same name."""
    protocol: str


@dataclass(eq=False)
class _Prepared:
    plan: Any
    program: _core.Program
    copies: Any = None
    """Memory for inputs that must not overlap the outputs, and an event: its last reader."""
    read: Any = None


class CudaGroup:
    """One rank's side. Not thread-safe."""

    def __init__(self, group: _core.Communicator, device: int) -> None:
        """Collective. Raises RuntimeError on all ranks if any of them cannot take part."""
        self.rank, self.size, self.device = group.rank, group.size, device
        control = group.split(0, group.rank, 0.0, "of GPUs")
        assert control is not None, "only ranks without a color get no group"
        self._group, self._control = group, control
        self._programs: dict[int, _core.Program] = {}  # by hash
        self._prepared: dict[_Shape, _Prepared] = {}
        self._refusals: dict[_Shape, str] = {}  # "" if supported
        self._held = Held()
        self._launched = 0
        self._latest: deque[str] = deque(maxlen=1024)
        self._told = False  # whether the error has been reported
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
            cuda = forming.executor()
            return {"process": _process(), "gpu": cuda.describe(self.device)["pci"]}

        at = agreed(self._control, here)
        mine = at[self.rank]
        sharing = sum(other["gpu"] == mine["gpu"] for other in at)

        def exported() -> dict[str, Any]:
            self._arena_shape = cuda.ArenaShape(self.size, channels=CHANNELS, slot_bytes=SLOT_BYTES)
            self._executor = cuda.Executor(self.device, self.rank, self._arena_shape, sharing)
            arena = self._executor.arena
            handle = cuda.export_memory(arena).hex() if any(other["process"] != mine["process"] for other in at) else ""
            return {"arena": arena, "handle": handle, "blocks": self._executor.blocks}

        told = agreed(self._control, exported)
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

        agreed(self._control, connected)
        self._cuda = cuda
        self._beside = cuda.Stream(self.device)
        self._blocks = min(said["blocks"] for said in told)  # all ranks must cut a Program alike
        if self.size > 1:
            self._watch = self._control.receive(0, 0, -1, timeout=_FOR_EVER, async_op=True)
            self._watch.on_done(self._executor.abort)

    def run(
        self, call: Call, buffers: Sequence[Buffer], average: bool, seconds: float, async_op: bool
    ) -> StreamFuture | None:
        """Queues the call on the current stream, or on a side stream (`async_op`). `average`: divides the output by
        the number of ranks on the same stream. `seconds`: how long the kernel may wait for peers.

        CommunicationError if a rank is lost or an earlier call was given up; the group must then be made anew.
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
        divides = average and any(output for _, output, _ in call.blocks)
        current = current_stream(target.owner, self.device) or 0
        if not async_op:
            self.launch(call, target.dtype, seconds, current)
            if divides:
                self._divide(target)
            return None
        if self._cuda.capturing(self.device, current):
            raise UsageError(f"{call.collective} with async_op cannot be part of a graph; without it, it can")
        beside, now, end = self._beside.handle, self._cuda.Event(self.device), self._cuda.Event(self.device)
        with at_stream(target.owner, self.device, beside) if average else nullcontext():
            now.record(current)
            now.precede(beside)
            self.launch(call, target.dtype, seconds, beside)
            if divides:
                self._divide(target)
        end.record(beside)
        self._held.add(end, [buffer.owner for buffer in buffers])
        future = StreamFuture(target.owner, self.device, self.check)
        future.queued(end)
        return future

    def _divide(self, target: Buffer) -> None:
        # A tensor that requires gradients refuses the division in place; its detached alias does not.
        array = target.owner.detach() if hasattr(target.owner, "detach") else target.owner
        array /= self.size

    def launch(self, call: Call, dtype: str, seconds: float, stream: int) -> None:
        """As run(), for blocks of `dtype` on this group's GPU and a stream given by its handle."""
        self.check()
        prepared = self._prepare(call, dtype)
        blocks = self._fitted(prepared, call.blocks, _core.itemsize(dtype), stream)
        pointers = [
            blocks[block][space] if space < 2 and rank == self.rank else 0 for rank, space, block in prepared.plan.bases
        ]
        self._executor.set_timeout(seconds)
        self._executor.launch(prepared.plan, pointers, stream)
        if prepared.read is not None:
            prepared.read.record(stream)
        self._launched += 1
        elements = sum(size for _, _, size in call.blocks)
        self._latest.append(f"{call.collective} #{self._launched} ({elements} x {dtype})")

    def takes(self, call: Call, dtype: str) -> bool:
        """Whether every rank can make a Plan for it; all ranks return the same."""
        try:
            return not self._refusal(self._shape(call, dtype), call)
        except ValueError:
            return False

    def _shape(self, call: Call, dtype: str) -> _Shape:
        """Looks up the Program of the call. ValueError if the algorithm does not support it."""
        elements = tuple(size for _, _, size in call.blocks)
        longest = max(elements, default=0) * _core.itemsize(dtype)
        which = (call.collective, call.root, call.bytes(dtype, self.size))
        name, _ = self._group.choice(*which, call.algorithm)
        if call.algorithm == "in_network":
            raise ValueError("aggregators add what is in the memory of hosts")
        if name in ("shared", "in_network"):  # in_network: chosen by a rule for host memory, which is ignored here
            name = "two_shot" if call.collective == "all_reduce" and longest > ONE_SHOT_BYTES else "direct"
        program = self._group.program_hash(*which, name)
        if program not in self._programs:
            self._programs[program] = self._group.program_for(*which, name)
        protocol = "ll" if call.even and longest <= LOW_LATENCY_BYTES else "simple"
        return _Shape(call.collective, call.op, call.root, elements, dtype, program, protocol)

    def _refusal(self, shape: _Shape, call: Call) -> str:
        """Why some rank cannot make a Plan for it, or "": the same at all ranks, since otherwise some would hang."""
        if shape not in self._refusals:
            self._refusals[shape] = self._tried(shape, call)
        return self._refusals[shape]

    def _tried(self, shape: _Shape, call: Call) -> str:
        program = self._programs[shape.program]
        if call.own_sizes_only and program.needs_size_matrix:
            return (
                f"algorithm {program.name} relays data between other ranks, so it needs every pair's size; "
                "use `direct` for an all_to_all with uneven sizes"
            )
        try:
            for rank in range(self.size):
                self._cuda.lowered(
                    program,
                    rank,
                    shape.dtype,
                    shape.op,
                    shape.elements,
                    self._arena_shape,
                    shape.protocol,
                    self._blocks,
                )
        except ValueError as refusal:
            return str(refusal)
        return ""

    def _prepare(self, call: Call, dtype: str) -> _Prepared:
        shape = self._shape(call, dtype)
        if shape not in self._prepared:
            refusal = self._refusal(shape, call)
            if refusal:
                raise UsageError(refusal)
            program = self._programs[shape.program]
            plan = self._cuda.Plan(
                self._executor, program, dtype, call.op, shape.elements, protocol=shape.protocol, blocks=self._blocks
            )
            self._prepared[shape] = _Prepared(plan, program)
        return self._prepared[shape]

    def _fitted(self, prepared: _Prepared, blocks: Sequence[Block], itemsize: int, stream: int) -> Sequence[Block]:
        """The blocks as the Program is proven for them: in place, out of place, or (nearly all Programs) both."""
        program = prepared.program
        if program.in_place and program.out_of_place:
            return blocks
        fitted: list[Block] = []
        used = 0
        for source, target, elements in blocks:
            size = elements * itemsize
            if size and source and target and not (program.in_place if source == target else program.out_of_place):
                copy = target
                if source == target:
                    copy = self._room(prepared, blocks, itemsize, stream) + used
                    used += -(-size // _ALIGNMENT) * _ALIGNMENT
                self._cuda.copy(self.device, copy, source, size, stream)
                source = copy
            fitted.append((source, target, elements))
        return fitted

    def _room(self, prepared: _Prepared, blocks: Sequence[Block], itemsize: int, stream: int) -> int:
        """The address of memory for copies of the inputs, once the last launch has read the previous ones."""
        if self._cuda.capturing(self.device, stream):
            raise UsageError(
                f"the program {prepared.program.name} is right only where outputs do not lie on inputs, and in a graph "
                "it cannot copy these; pass another output"
            )
        if prepared.copies is None:
            size = sum(-(-elements * itemsize // _ALIGNMENT) * _ALIGNMENT for _, _, elements in blocks)
            prepared.copies = self._cuda.Memory(self.device, size)
            prepared.read = self._cuda.Event(self.device)
        prepared.read.precede(stream)
        return int(prepared.copies.address)

    def check(self) -> None:
        """Raises the errors so far, with operation and ranks, and makes sure that all ranks learn of them."""
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
        """Waits for launched work and for the other ranks to close. Raises CommunicationError for errors not yet
        reported."""
        try:
            self._executor.wait()
            if not self._told:
                self.check()
                self._control.barrier()  # no kernel writes any more,
                self._imported.clear()
                self._control.barrier()  # and no rank maps the memory freed now
        except CommunicationError:
            if not self._told:
                self.check()  # names the operation
            raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Ends this rank's kernels without waiting for the others."""
        self._executor.abort()
        self._executor.wait()
        self._held.wait()
        self._imported.clear()
        self._control.shutdown()

    def _operation(self, trouble: dict[str, Any] | None) -> str:
        number = self._launched if trouble is None else trouble["launch"]
        back = self._launched - number
        return self._latest[-1 - back] if 0 <= back < len(self._latest) else f"operation #{number}"

    def _sentence(self, why: str) -> str:
        return f"rank {self.rank}, on GPU {self.device}: {why}; make the group anew"


def _process() -> str:
    """A name unique to this process, even across containers, and the same for all its threads."""
    number = os.getpid()
    return f"{number} {_NAMES.setdefault(number, secrets.token_hex(8))}"


def _failure(sentence: str, kind: str, ranks: tuple[int, ...]) -> CommunicationError:
    error = CommunicationError(sentence)
    error.kind, error.ranks = kind, ranks
    return error


def _places(buffers: Sequence[Buffer]) -> str:
    return " and ".join(sorted({f"GPU {b.device}" if b.device >= 0 else "the CPU" for b in buffers}))

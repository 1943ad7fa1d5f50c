"""A group's GPU side if the ranks are on several hosts: staging through host memory.

    GPU ──down──▶ slot ── an operation of a CPU group ──▶ slot ──up──▶ GPU
    stream `down` [p3]       [p2] (and p1, if it is not over)    [p0]  stream `up`

A slot is pinned memory for one piece of a call. Pieces of a call overlap, and so do calls. The stream delays the
device-to-host copies of a piece until the last piece in its slot has gone up; a thread waits for them before it starts
the operation. Ranks see the same calls in the same order and cut them alike, in a separate CPU group, since operations
that others start in between have their own order. The CPU's selection picks the Program for the whole call.

The torch backend has the same pipeline over torch's streams (csrc/torch/device/staging.hpp).

Not supported, each with its own error: priorities and parts, factors, messages, graphs.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syntony import _core
from syntony.collectives.buffers import Buffer, UsageError
from syntony.collectives.calls import Block
from syntony.collectives.cuda import forming
from syntony.collectives.cuda.call import Call
from syntony.collectives.cuda.stream_future import Held, StreamFuture
from syntony.collectives.cuda.streams import current_stream

# These values have not been measured on a GPU. Ranks must agree on the first.
PIECE_BYTES = 4 << 20
SLOTS = 4

_LINE = 64


class _Span(NamedTuple):
    """A range of GPU bytes and its place in a slot."""

    address: int
    offset: int
    bytes: int


@dataclass(eq=False)
class _Staged:
    """A call in flight."""

    call: Call
    dtype: str
    algorithm: str
    average: bool
    seconds: float
    ready: Any  # an event: the caller's stream has reached the call
    owners: list[Any] | None  # of the arrays; None if the caller keeps them alive
    future: StreamFuture
    most: int  # elements of a block per piece
    pieces: int
    failure: Exception | None = None


@dataclass(eq=False)
class _Slot:
    down: Any  # an event: the inputs of its piece have arrived
    up: Any  # an event: the last piece in it has been copied up
    memory: Any = None
    bytes: int = 0


@dataclass(eq=False)
class _Piece:
    staged: _Staged
    number: int
    slot: _Slot
    outputs: list[_Span] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)  # in the slot
    work: _core.Work | None = None

    @property
    def last(self) -> bool:
        return self.number + 1 == self.staged.pieces


class StagedGroup:
    """One rank's side. One thread at a time may make calls; a thread of the group copies and runs operations."""

    def __init__(self, group: _core.Communicator, device: int) -> None:
        """Collective. Raises RuntimeError on all ranks if any of them cannot take part."""
        self.rank, self.size, self.device = group.rank, group.size, device
        wire = group.split(0, group.rank, 0.0, "of GPUs, staged")
        assert wire is not None, "only ranks without a color get no group"
        self._group, self._wire = group, wire
        self._programs: set[int] = set()  # hashes of those loaded in the wire's group
        self._held = Held()
        self._cuda: Any = None
        try:
            forming.agreed(wire, self._take_streams)
        except BaseException:
            wire.shutdown()
            raise
        self._pieces = 0  # so far
        self._calls: queue.SimpleQueue[_Staged | None] = queue.SimpleQueue()  # None: no more
        self._cutting: _Staged | None = None
        self._begun = 0  # pieces of it
        self._over = False
        self._thread = threading.Thread(target=self._live, name="syntony staging", daemon=True)
        self._thread.start()

    def _take_streams(self) -> dict[str, Any]:
        self._cuda = forming.executor()
        self._down, self._up = self._cuda.Stream(self.device), self._cuda.Stream(self.device)
        event = self._cuda.Event
        self._slots = [_Slot(event(self.device), event(self.device)) for _ in range(SLOTS)]
        return {}

    def run(
        self, call: Call, buffers: Sequence[Buffer], average: bool, seconds: float, async_op: bool
    ) -> StreamFuture | None:
        """Runs after the work that the current stream holds now. Without `async_op` it returns once the host has done
        its part; later work on the stream runs after the call. `seconds`: timeout of each piece on the wire."""
        if any(buffer.device != self.device for buffer in buffers):
            raise UsageError(
                f"{call.collective} got arrays on several devices; rank {self.rank} uses GPU {self.device}"
            )
        target = buffers[-1]
        stream = current_stream(target.owner, self.device) or 0
        if self._cuda.capturing(self.device, stream):
            raise UsageError(f"{call.collective} goes through the hosts' memory, which a graph of a GPU cannot hold")
        algorithm = self._algorithm(call, target.dtype)
        ready = self._cuda.Event(self.device)
        ready.record(stream)
        most, pieces = self._cut(call, target)
        future = StreamFuture(target.owner, self.device)
        owners = [buffer.owner for buffer in buffers] if async_op else None
        self._calls.put(_Staged(call, target.dtype, algorithm, average, seconds, ready, owners, future, most, pieces))
        if async_op:
            return future
        future.wait()
        return None

    def _algorithm(self, call: Call, dtype: str) -> str:
        """The name that the wire's group uses for the Program that the CPU would run."""
        which = (call.collective, call.root, call.bytes(dtype, self.size), call.algorithm)
        number = self._group.program_hash(*which)
        name = f"staged {number:016x}"
        if number not in self._programs:
            self._wire.add_program(name, self._group.program_for(*which))
            self._programs.add(number)
        return name

    def _cut(self, call: Call, target: Buffer) -> tuple[int, int]:
        """Elements of a block per piece, and the number of pieces: the same at all ranks."""
        longest = max((elements for _, _, elements in call.blocks), default=0)
        if call.own_sizes_only:
            return longest, 1
        most = max(1, PIECE_BYTES // (target.itemsize * call.at_once(self.size)))
        return most, max(1, -(-longest // most))

    def abort(self, why: str) -> None:
        """Ends the calls of all ranks."""
        self._wire.abort(why)

    def close(self) -> None:
        """Waits for all calls."""
        self._calls.put(None)
        self._thread.join()
        self._wire.shutdown()
        self._held.wait()

    def leave(self) -> None:
        """Ends this rank's calls without waiting for the others."""
        self._wire.shutdown()
        self.close()

    # ---- the thread

    def _live(self) -> None:
        flying: deque[_Piece] = deque()
        started = 0  # of these
        while True:
            while len(flying) < SLOTS and (piece := self._next(wait=not flying)) is not None:
                flying.append(piece)
                self._try(piece, self._go_down)
            if not flying:
                return
            # Start a piece once its inputs have arrived; an arrived piece must not wait for inputs being computed.
            if started < len(flying) and (started == 0 or flying[started].slot.down.done):
                self._try(flying[started], self._start)
                started += 1
            else:
                self._finish(flying.popleft())
                started -= 1

    def _next(self, wait: bool) -> _Piece | None:
        """The next piece. If there is none, waits for it or returns None; None at the end."""
        if self._cutting is None:
            try:
                self._cutting = None if self._over else self._calls.get(block=wait)
            except queue.Empty:
                return None
            self._begun = 0
            if self._cutting is None:
                self._over = True
                return None
        slot = self._slots[self._pieces % SLOTS]
        self._pieces += 1
        piece = _Piece(self._cutting, self._begun, slot)
        self._begun += 1
        if piece.last:
            self._cutting = None
        return piece

    def _try(self, piece: _Piece, step: Callable[[_Piece], None]) -> None:
        """Runs a step. A failure that only this rank sees must end the call at all ranks, or they would hang."""
        staged = piece.staged
        if staged.failure is not None:
            return
        try:
            step(piece)
        except (_core.CommunicationError, ValueError) as failure:  # the others learn of it, or fail the same way
            staged.failure = failure
        except RuntimeError as error:
            why = f"rank {self.rank}, on GPU {self.device}: {staged.call.collective} failed: {error}"
            staged.failure = RuntimeError(why)
            self._wire.abort(why)

    def _go_down(self, piece: _Piece) -> None:
        staged, slot = piece.staged, piece.slot
        if piece.number == 0:
            staged.ready.precede(self._down.handle)
        itemsize = _core.itemsize(staged.dtype)
        inputs: list[_Span] = []
        used = 0

        def placed(address: int, elements: int) -> _Span:
            nonlocal used
            span = _Span(address, used, elements * itemsize)
            used += -(-span.bytes // _LINE) * _LINE
            return span

        offsets: list[tuple[_Span | None, _Span | None, int]] = []
        for source, target, whole in staged.call.blocks:
            begin = min(piece.number * staged.most, whole)
            elements = min(whole - begin, staged.most)
            given = placed(source + begin * itemsize, elements) if source else None
            if given is not None:
                inputs.append(given)
            taken = given if source == target else placed(target + begin * itemsize, elements) if target else None
            if taken is not None and (taken is not given or _core.COLLECTIVES[staged.call.collective]["reduces"]):
                piece.outputs.append(taken)  # otherwise it is already in place
            offsets.append((given, taken, elements))
        memory = self._room(slot, used)
        piece.blocks = [
            (memory + given.offset if given else 0, memory + taken.offset if taken else 0, elements)
            for given, taken, elements in offsets
        ]
        slot.up.precede(self._down.handle)
        for span in inputs:
            if span.bytes:
                self._cuda.copy(self.device, memory + span.offset, span.address, span.bytes, self._down.handle)
        slot.down.record(self._down.handle)

    def _room(self, slot: _Slot, size: int) -> int:
        if slot.bytes < size or slot.memory is None:
            slot.up.synchronize()  # from the memory that goes now
            slot.bytes = max(size, _LINE)
            slot.memory = self._cuda.PinnedMemory(slot.bytes)
        return int(slot.memory.address)

    def _start(self, piece: _Piece) -> None:
        staged = piece.staged
        piece.slot.down.synchronize()
        piece.work = self._wire.run(
            collective=staged.call.collective,
            dtype=staged.dtype,
            op=staged.call.op,
            root=staged.call.root,
            blocks=piece.blocks,
            algorithm=staged.algorithm,
            timeout=staged.seconds,
            async_op=True,
            average=staged.average,
            even=staged.call.even,
        )

    def _finish(self, piece: _Piece) -> None:
        staged = piece.staged
        if piece.work is not None and staged.failure is not None:
            with suppress(_core.CommunicationError):  # already reported; this piece only reuses the slot
                piece.work.wait()
        self._try(piece, self._go_up)
        if piece.last:
            self._try(piece, self._settle)
        if piece.last and staged.failure is not None:
            staged.future.failed(staged.failure)

    def _go_up(self, piece: _Piece) -> None:
        if piece.work is not None:
            piece.work.wait()
        up = self._up.handle
        memory = int(piece.slot.memory.address)
        for span in piece.outputs:
            if span.bytes:
                self._cuda.copy(self.device, span.address, memory + span.offset, span.bytes, up)
        piece.slot.up.record(up)

    def _settle(self, piece: _Piece) -> None:
        staged = piece.staged
        end = self._cuda.Event(self.device)
        end.record(self._up.handle)
        if staged.owners is not None:
            self._held.add(end, staged.owners)
        staged.future.queued(end)

"""How fast the ranks of a host move bytes, by the path that the bytes take, measured by all ranks at once.

    copy       within a rank's memory                              stream     the same past the caches
    show       into memory that the peers have read before         past       the same past the caches
    take       from what a peer has just shown                     taken      the same, past the caches
    add        all ranks' pieces as shown, into one's own          added      the same, past the caches
    read       a peer's own buffer, through the system             reread     the same, which the peer has just written

Every path is timed at the size of the piece that would take it: a cache serves the small ones. What is longer than the
memory in which ranks show pieces goes through it piece by piece, as in the runtime.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np

from syntony import _core
from syntony.benchmarks.bench.elements import Array
from syntony.collectives.bootstrap.launch import Exchange

PATHS = ("copy", "stream", "show", "past", "take", "taken", "add", "added", "read", "reread")

Step = tuple[Callable[[int], None], Callable[[int], object]]

_LINE = 64
_BATCH = 1 << 20  # bytes of a path that are timed between two clocks, at most
_TURNS = 15


class Barrier(Protocol):
    def barrier(self) -> object: ...


class _Remote(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _rotation(ranks: int, size: int) -> int:
    """Bytes over which pieces of `size` bytes that are shown take turns, as the runtime's do."""
    return 2 * _core.shared_turn_bytes(ranks, size)


def shared_stages(ranks: int, size: int) -> list[Array]:
    """Memory for each rank to show pieces of up to `size` bytes in; made before the ranks are forked."""
    return [np.frombuffer(mmap.mmap(-1, _rotation(ranks, size) + _LINE), np.uint8) for _ in range(ranks)]


class MemoryPaths:
    """One rank's. Making one and all methods are collective."""

    def __init__(self, exchange: Exchange, meeting: Barrier, stages: list[Array], size: int) -> None:
        """`size`: of the largest piece, in bytes."""
        self._rank, self._ranks, self._meeting, self._stages = exchange.rank, exchange.size, meeting, stages
        self._own, self._to, self._written = (_lines(size) for _ in range(3))
        addresses = f"{os.getpid()} {self._own.ctypes.data} {self._written.ctypes.data}".encode()
        self._places = [tuple(map(int, a.split())) for a in exchange.all_gather(f"addresses of {size}", addresses)]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._calls = {name: self._least(partial(step, 0)) for name, (_, step) in self._steps(_LINE).items()}

    def seconds(self, size: int) -> dict[str, float]:
        """Of one piece of `size` bytes (whole lines), by path; medians on this rank. A closed path is missing."""
        pieces = 1 if size <= _rotation(self._ranks, size) else size // _core.shared_piece_bytes(self._ranks)
        return {
            name: self._timed(before, step, size, pieces * self._calls[name])
            for name, (before, step) in self._steps(size).items()
        }

    def wake(self) -> float:
        """Seconds from a byte's sending to its reading by a peer that slept for it: half a round trip, median.

        Ranks 0 and 1; 0 on others."""
        if self._rank > 1:
            return 0.0
        return _half_round_trip(self._rank, self._places[0][0])

    def _steps(self, size: int) -> dict[str, Step]:
        """By path: what makes a rank ready to move a piece of `size` bytes, and what moves it."""
        own, to, written = self._own[:size], self._to[:size], self._written[:size]
        peer = (self._rank + 1) % self._ranks
        rotation = _rotation(self._ranks, size)
        piece = size if size <= rotation else _core.shared_piece_bytes(self._ranks)
        turns = rotation // piece

        def part(memory: Array, at: int) -> Array:
            return memory[at : min(at + piece, size)]

        def shown(rank: int, turn: int, at: int) -> Array:
            begin = (turn + at // piece) % turns * piece
            return self._stages[rank][begin : begin + min(piece, size - at)]

        def move(copy: Callable[[Array, Array], object], turn: int, *, shows: bool) -> None:
            for at in range(0, size, piece):
                if shows:
                    copy(shown(self._rank, turn, at), part(own, at))
                else:
                    copy(part(to, at), shown(peer, turn, at))

        def add(turn: int, *, past: bool) -> None:
            for at in range(0, size, piece):
                pieces = (part(own, at) if rank == self._rank else shown(rank, turn, at) for rank in range(self._ranks))
                _core.reduce("float32", "sum", part(to, at), list(pieces), past)

        def nothing(turn: int) -> None:
            del turn

        show, take = partial(move, np.copyto, shows=True), partial(move, np.copyto, shows=False)
        steps: dict[str, Step] = {
            "copy": (nothing, lambda turn: np.copyto(to, own)),
            "stream": (nothing, lambda turn: _core.stream_copy(to, own)),
            "show": (take, show),
            "past": (take, partial(move, _core.stream_copy, shows=True)),
            "take": (show, take),
            "taken": (show, partial(move, _core.stream_copy, shows=False)),
            "add": (show, partial(add, past=False)),
            "added": (show, partial(add, past=True)),
        }
        _, peers_own, peers_written = self._places[peer]
        if self._reader(peer, to[:_LINE], peers_own)() == _LINE:
            read, reread = self._reader(peer, to, peers_own), self._reader(peer, to, peers_written)
            steps["read"] = (nothing, lambda turn: read())
            steps["reread"] = (lambda turn: np.copyto(written, own), lambda turn: reread())
        return steps

    def _timed(self, before: Callable[[int], None], step: Callable[[int], object], size: int, call: float) -> float:
        """Rounds in which all ranks get ready, then all step. Small pieces several times between two clocks."""
        times = min(16, max(1, _BATCH // size)) if size < _BATCH else 1
        spent = []
        for turn in range(0, (_TURNS + 2) * times, times):
            for each in range(turn, turn + times):
                before(each)
            self._meeting.barrier()
            begin = time.perf_counter()
            for each in range(turn, turn + times):
                step(each)
            spent.append((time.perf_counter() - begin) / times - call)
            self._meeting.barrier()
        return max(1e-9, median(spent[2:]))

    def _least(self, step: Callable[[], object]) -> float:
        """Of a step that moves a line: the overhead of a call, to be left out of the bytes' time."""
        spent = []
        for _ in range(200):
            begin = time.perf_counter()
            step()
            spent.append(time.perf_counter() - begin)
        return median(spent)

    def _reader(self, peer: int, to: Array, address: int) -> Callable[[], int]:
        """process_vm_readv; what it returns is the bytes that it has read."""
        local, remote = _Remote(to.ctypes.data, to.size), _Remote(address, to.size)
        one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
        call = self._libc.process_vm_readv
        arguments = (self._places[peer][0], ctypes.byref(local), one, ctypes.byref(remote), one, none)
        return lambda: int(call(*arguments))


def _lines(size: int) -> Array:
    """Whole lines, at the beginning of one."""
    memory = np.ones(size + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:size]


def _half_round_trip(rank: int, token: int) -> float:
    names = [f"\0syntony-wake-{token}-{side}" for side in range(2)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as doorbell:
        doorbell.bind(names[rank])
        spent: list[float] = []
        for _ in range(60):
            begin = time.perf_counter()
            if rank == 0:
                _ring(doorbell, names[1])
                doorbell.recv(1)
            else:
                doorbell.recv(1)
                _ring(doorbell, names[0])
            spent.append(time.perf_counter() - begin)
        return median(spent[10:]) / 2


def _ring(doorbell: socket.socket, name: Any) -> None:
    while True:
        try:
            doorbell.sendto(b"!", name)
            return
        except ConnectionRefusedError:
            time.sleep(0.001)  # it is still to be bound

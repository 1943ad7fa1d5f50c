"""How fast the ranks of a host move bytes, by the path that the bytes take, measured by all ranks at once.

    copy       within a rank's memory                              stream     the same past the caches
    show       into memory that the peers have read before         past       the same past the caches
    take       from what a peer has just shown                     taken      the same, past the caches
    add        all ranks' pieces as shown, into one's own          added      the same, past the caches
    read       a peer's own buffer, through the system             reread     the same, which the peer has just written

Every path is timed at the size of the piece that would take it: a cache serves the small ones. What is longer than a
piece is shown, and taken, piece by piece, as in the runtime.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np

from syntony import _core
from syntony.benchmarks.bench.elements import Array
from syntony.collectives.bootstrap.launch import Exchange

PATHS = ("copy", "stream", "show", "past", "take", "taken", "add", "added", "read", "reread")

Step = Callable[[int, int], object]
"""Of a turn, the piece that begins at a byte."""

_LINE = 64
_BATCH = 1 << 20  # bytes of a path that are timed between two clocks, at most
_TURNS = 15


class Barrier(Protocol):
    def barrier(self) -> object: ...


class _Remote(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def shared_stages(ranks: int, size: int) -> list[Array]:
    """Memory for each rank to show pieces of up to `size` bytes in; made before the ranks are forked."""
    longest = max(_BATCH, 2 * _core.shared_piece_bytes(ranks), 2 * _core.shared_turn_bytes(ranks, size))
    return [np.frombuffer(mmap.mmap(-1, longest + _LINE), np.uint8) for _ in range(ranks)]


@dataclass(frozen=True)
class _Path:
    """`ready` is what all ranks do before they `move` a piece. `piece` in bytes; so many follow each other."""

    ready: Step
    move: Step
    piece: int
    together: int


class MemoryPaths:
    """One rank's. Making one and all methods are collective."""

    def __init__(self, exchange: Exchange, meeting: Barrier, stages: list[Array], size: int) -> None:
        """`size`: of the largest piece, in bytes."""
        self._rank, self._ranks, self._meeting, self._stages = exchange.rank, exchange.size, meeting, stages
        self._own, self._to, self._written = (_lines(size) for _ in range(3))
        addresses = f"{os.getpid()} {self._own.ctypes.data} {self._written.ctypes.data}".encode()
        self._places = [tuple(map(int, a.split())) for a in exchange.all_gather(f"addresses of {size}", addresses)]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._calls = {name: self._least(partial(path.move, 0, 0)) for name, path in self._paths(_LINE).items()}

    def seconds(self, size: int) -> dict[str, float]:
        """Of one piece of `size` bytes (whole lines), by path; medians on this rank. A closed path is missing."""
        return {name: self._timed(path, size, self._calls[name]) for name, path in self._paths(size).items()}

    def wake(self) -> float:
        """Seconds from a byte's sending to its reading by a peer that slept for it: half a round trip, median.

        Ranks 0 and 1; 0 on others."""
        if self._rank > 1:
            return 0.0
        return _half_round_trip(self._rank, self._places[0][0])

    def _paths(self, size: int) -> dict[str, _Path]:
        own, to, written = self._own[:size], self._to[:size], self._written[:size]
        peer = (self._rank + 1) % self._ranks
        piece = min(size, _core.shared_piece_bytes(self._ranks))
        times = min(16, max(1, _BATCH // size))
        swaps = _core.shared_stages_swap(self._ranks)
        places = max(2, times) if swaps else 2 * _core.shared_turn_bytes(self._ranks, size) // piece

        def part(memory: Array, at: int) -> Array:
            return memory[at : at + piece]

        def shown(rank: int, turn: int, at: int) -> Array:
            use, place = divmod(turn, places)
            owner = (rank + use) % 2 if swaps else rank
            return self._stages[owner][place * piece :][: min(piece, size - at)]

        def take(turn: int, at: int, copy: Callable[[Array, Array], object] = np.copyto) -> None:
            copy(part(to, at), shown(peer, turn, at))

        def show(turn: int, at: int, copy: Callable[[Array, Array], object] = np.copyto) -> None:
            copy(shown(self._rank, turn, at), part(own, at))

        def show_again(turn: int, at: int, copy: Callable[[Array, Array], object] = np.copyto) -> None:
            show(turn + places, at, copy)

        def add(turn: int, at: int, *, past: bool) -> None:
            pieces = (part(own, at) if rank == self._rank else shown(rank, turn, at) for rank in range(self._ranks))
            _core.reduce("float32", "sum", part(to, at), list(pieces), past)

        def nothing(turn: int, at: int) -> None:
            del turn, at

        def write(turn: int, at: int) -> None:
            del turn, at
            np.copyto(written, own)

        past = _core.stream_copy
        shows: dict[str, Step] = {"show": show_again, "past": partial(show_again, copy=past)}
        takes: dict[str, Step] = {
            "take": take,
            "taken": partial(take, copy=past),
            "add": partial(add, past=False),
            "added": partial(add, past=True),
        }
        moves: dict[str, Step] = {
            "copy": lambda turn, at: np.copyto(to, own),
            "stream": lambda turn, at: past(to, own),
        }
        writes: dict[str, Step] = {}
        _, peers_own, peers_written = self._places[peer]
        if self._reader(peer, to[:_LINE], peers_own)() == _LINE:
            read, reread = self._reader(peer, to, peers_own), self._reader(peer, to, peers_written)
            moves["read"] = lambda turn, at: read()
            writes["reread"] = lambda turn, at: reread()
        together = times if size <= piece else places
        return (
            {name: _Path(nothing, step, size, times) for name, step in moves.items()}
            | {name: _Path(take, step, piece, together) for name, step in shows.items()}
            | {name: _Path(show, step, piece, together) for name, step in takes.items()}
            | {name: _Path(write, step, size, times) for name, step in writes.items()}
        )

    def _timed(self, path: _Path, size: int, call: float) -> float:
        """Seconds of a piece of `size` bytes, median. All ranks get ready, then all move; short ones several times."""
        batches = list(_batches(size, path))
        moved = sum(len(batch) for batch in batches)
        spent = []
        for first in range(0, (_TURNS + 2) * moved, moved):
            seconds = 0.0
            for batch in batches:
                for turn, at in batch:
                    path.ready(first + turn, at)
                self._meeting.barrier()
                begin = time.perf_counter()
                for turn, at in batch:
                    path.move(first + turn, at)
                seconds += time.perf_counter() - begin - len(batch) * call
                self._meeting.barrier()
            spent.append(seconds if size > path.piece else seconds / moved)
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


def _batches(size: int, path: _Path) -> Iterator[list[tuple[int, int]]]:
    """Turns, and where their pieces begin: all pieces of `size` bytes, or the only one several times."""
    pieces = -(-size // path.piece)
    turns = pieces if pieces > 1 else path.together
    for first in range(0, turns, path.together):
        last = min(turns, first + path.together)
        yield [(turn, turn % pieces * path.piece) for turn in range(first, last)]


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

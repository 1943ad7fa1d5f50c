"""More elements than 31 bits count, and more bytes than 32 bits do, in memory of a few megabytes.

A buffer is one tile of memory mapped again and again, as far as it reaches, and a last tile of its own. So results are
compared where they repeat, and at their end. The tile's length divides no power of two: what is written 2^31 or 2^32
bytes beside its place differs from what belongs there. (Empty buffers, one element, and lengths that no rank count
divides are drawn in test_collectives.py.)
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from tests.csrc.program_interpreter import blocks_of, ends, starts
from tests.csrc.runtime.cases import COLLECTIVES, REDUCING
from tests.csrc.runtime.group import Bytes
from tests.csrc.runtime.harness import Rank, run_as_processes

RANKS = 2
TILE = mmap.PAGESIZE * 1031
ELEMENTS = {"int8": 2**31 + 17, "float64": 2**29 + 3}  # the latter are 24 bytes more than 4 GiB
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000  # of Linux

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)


class Tiled:
    """`size` bytes of which all but the last tile are one tile."""

    def __init__(self, size: int) -> None:
        tiles = -(-size // TILE)
        self._file = os.memfd_create("tiled")
        os.ftruncate(self._file, 2 * TILE)
        self._room = mmap.mmap(-1, tiles * TILE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.bytes: Bytes = np.frombuffer(self._room, np.uint8)[:size]
        for tile in range(tiles):
            last = tile == tiles - 1
            protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED
            place = self.bytes.ctypes.data + tile * TILE
            assert _libc.mmap(place, TILE, protection, flags, self._file, TILE if last else 0) == place
        self._last = (tiles - 1) * TILE

    def fill(self, pattern: np.ndarray) -> None:
        whole = pattern.view(np.uint8)
        self.bytes[:TILE] = whole
        self.bytes[self._last :] = whole[: len(self.bytes) - self._last]

    def holds(self, pattern: np.ndarray) -> bool:
        whole = pattern.view(np.uint8)
        end = self.bytes[self._last :]
        return bool(np.array_equal(self.bytes[:TILE], whole) and np.array_equal(end, whole[: len(end)]))


def pattern(dtype: str, source: int) -> np.ndarray:
    """What rank or block `source` brings to each tile."""
    return (np.arange(TILE // np.dtype(dtype).itemsize) % (29 + source)).astype(dtype)


def call(rank: Rank, collective: str, dtype: str, algorithm: str) -> None:
    group = rank.join(timeout=240.0)
    size = ELEMENTS[dtype] * np.dtype(dtype).itemsize
    inputs, outputs = {}, {}
    for block in range(blocks_of(collective, RANKS)):
        if starts(collective, RANKS, 0, group.rank, block):
            inputs[block] = Tiled(size)
            inputs[block].fill(pattern(dtype, group.rank if collective in REDUCING else block))
        if ends(collective, RANKS, 0, group.rank, block):
            outputs[block] = Tiled(size)
    group.run(
        collective,
        dtype,
        [ELEMENTS[dtype]] * blocks_of(collective, RANKS),
        {block: memory.bytes for block, memory in inputs.items()},
        {block: memory.bytes for block, memory in outputs.items()},
        algorithm=algorithm,
    )
    for block, output in outputs.items():
        expected = pattern(dtype, block)
        if collective in REDUCING:
            expected = pattern(dtype, 0) + pattern(dtype, 1)
        assert output.holds(expected), f"{collective} of {dtype}: block {block} is wrong"
    rank.meet("done")
    group.shutdown()


def message(rank: Rank) -> None:
    group = rank.join(timeout=240.0)
    memory = Tiled(2**32 + 24)
    if group.rank == 0:
        memory.fill(pattern("int8", 0))
        group.send(memory.bytes, 1)
    else:
        group.receive(memory.bytes, 0)
        assert memory.holds(pattern("int8", 0))
    rank.meet("done")
    group.shutdown()


def run(body: object, *arguments: object, hosts: str) -> None:
    run_as_processes(body, RANKS, *arguments, hosts=hosts, deadline=280.0)  # type: ignore[arg-type]


def sweep() -> Iterator[tuple[str, str, str, str]]:
    for hosts, algorithm in (("", "auto"), ("", "direct"), ("ab", "auto")):
        for collective in COLLECTIVES:
            for dtype in ELEMENTS:
                yield collective, dtype, algorithm, hosts


def test_more_elements_than_31_bits_count() -> None:
    run(call, "broadcast", "int8", "auto", hosts="")


@pytest.mark.sweep
@pytest.mark.parametrize(("collective", "dtype", "algorithm", "hosts"), list(sweep()))
def test_large_counts(collective: str, dtype: str, algorithm: str, hosts: str) -> None:
    run(call, collective, dtype, algorithm, hosts=hosts)


@pytest.mark.sweep
@pytest.mark.parametrize("hosts", ["", "ab"])
def test_a_message_of_more_than_4_gib(hosts: str) -> None:
    run(message, hosts=hosts)

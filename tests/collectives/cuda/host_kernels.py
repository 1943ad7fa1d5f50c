"""Generated kernels on threads of the host: compiled by the host's compiler, run through ctypes.

What differs from a GPU is the Machine alone (tests/csrc/cuda/host_machine.hpp), so the text of the kernels and of the
headers of csrc/cuda/device is tested as it is: flags, waits, FIFOs, arithmetic.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from syntony import _core
from syntony.collectives.cuda.launch import LAUNCH, Room, Sizes, argument, slot_addresses
from syntony.collectives.cuda.source import ROOT, Source
from tests.csrc.program_interpreter import ends, starts

HOST = Path(__file__).parent / "host"
FLAGS = ("-std=c++20", "-O0", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pthread")
INCLUDES = (f"-I{ROOT}", f"-I{Path(__file__).parents[2] / 'csrc/cuda'}")
POISON = 0xA5

Bytes = np.ndarray
Blocks = dict[int, Bytes]
"""Block of the collective -> its bytes."""


def write_sources(sources: Sequence[Source], folder: Path) -> Path:
    """One file with all the kernels, each to be called by its name."""
    entries = "\n".join(
        f'extern "C" void {source.kernel}(const Launch* launches, int count, int threads) {{\n'
        f"  run_on_threads({source.kernel}_code::run, launches, count, threads);\n}}"
        for source in sources
    )
    text = "\n".join(source.text for source in sources)
    text += f'#include "host_machine.hpp"\n{(HOST / "run.cpp").read_text()}'
    (folder / "kernels.cpp").write_text(f"{text}namespace syntony::cuda::straight {{\n{entries}\n}}\n")
    return folder / "kernels.cpp"


def compile_for_host(sources: Sequence[Source], folder: Path, *flags: str) -> ctypes.CDLL:
    """A library with all the kernels."""
    path, library = write_sources(sources, folder), folder / "kernels.so"
    command = ["g++", *FLAGS, *INCLUDES, *flags, "-fPIC", "-shared", path, "-o", library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return ctypes.CDLL(str(library))


def aligned(size: int, phase: int = 0) -> Bytes:
    """Poisoned memory at an address of `phase` modulo 256."""
    memory = np.full(size + 512, POISON, np.uint8)
    start = (phase - memory.ctypes.data) % 256
    return memory[start : start + size]


@dataclass
class HostRun:
    """A kernel bound to sizes: launched any number of times, as on a GPU, on the same flags."""

    library: ctypes.CDLL
    source: Source
    elements: Sequence[int]
    slice_bytes: int
    stripes: int
    threads: int = 1
    apart: bool = False
    """Whether each rank is launched by itself."""
    phase: int = 0
    """Of the users' memory, modulo 256."""
    ranks: range | None = None
    """Those that come; None for all."""

    def __post_init__(self) -> None:
        program, itemsize = self.source.program, _core.itemsize(self.source.dtype)
        self.sizes = Sizes.of(program, self.elements, itemsize, self.slice_bytes)
        room = Room.of(self.source, self.sizes, self.stripes)
        self.flags = [aligned(size) for size in room.flags]
        for memory in self.flags:
            memory[:] = 0
        self.fifos = [aligned(size) for size in room.fifos]
        self.scratch = [aligned(size) for size in room.scratch]
        self.trouble = np.zeros(1, np.uint64)

    def launch(self, inputs: Sequence[Blocks], in_place: bool = False, seconds: float = 3600.0) -> list[Blocks]:
        """The outputs of every rank. The inputs are left alone."""
        program, source = self.source.program, self.source
        itemsize = _core.itemsize(source.dtype)
        outputs: list[Blocks] = []
        blocks = []
        kept = []
        for rank in range(program.ranks):
            addresses, result = [], {}
            for block, count in enumerate(self.elements):
                given = [0, 0]
                if starts(program.collective, program.ranks, program.root, rank, block):
                    memory = aligned(count * itemsize, self.phase)
                    memory[:] = inputs[rank][block]
                    kept.append(memory)
                    given[0] = memory.ctypes.data
                if ends(program.collective, program.ranks, program.root, rank, block):
                    same = in_place and given[0]
                    result[block] = kept[-1] if same else aligned(count * itemsize, self.phase)
                    given[1] = result[block].ctypes.data
                addresses.append((given[0], given[1]))
            outputs.append(result)
            blocks.append(addresses)
        slots = slot_addresses(program, self.sizes, blocks, [memory.ctypes.data for memory in self.scratch])
        chunks = np.ascontiguousarray(self.sizes.chunks)
        fifos = np.array([memory.ctypes.data for memory in self.fifos], np.uint64)
        flags = np.array([memory.ctypes.data for memory in self.flags], np.uint64)
        ranks = self.ranks or range(program.ranks)
        groups = [range(rank, rank + 1) for rank in ranks] if self.apart else [ranks]
        launches = np.zeros(len(groups), LAUNCH)
        for i, ranks in enumerate(groups):
            launches[i] = argument(
                source, self.sizes, slots=slots.ctypes.data, chunks=chunks.ctypes.data, fifos=fifos.ctypes.data,
                flags=flags.ctypes.data, trouble=self.trouble.ctypes.data, seconds=seconds,
                stripes=self.stripes, ranks=ranks,
            )  # fmt: skip
        kernel = getattr(self.library, source.kernel)
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        kernel(launches.ctypes.data, len(groups), self.threads)
        return outputs

"""Generated kernels on GPUs: compiled by NVRTC through cupy, kept on disk, launched on cupy arrays.

    compiled = Compiled.of(program, "bfloat16")            compiles, or finds what was compiled before
    bound = compiled.bind(inputs, outputs)                 addresses, sizes, memory of its own
    bound.launch()                                         on the current stream, as often as wanted, also in a graph

All ranks live in this process: every rank on the GPU of its arrays, several on one where they share it ("virtual
ranks"). A lane is a thread block, `stripes` of them share its slices, and all blocks of a GPU must be resident at once,
since they wait for each other: `bind` uses as many stripes as fit, and refuses by name a Program of which not even one
does (one_lane.py makes it fit). For the same reason two launches must not run beside each other on a GPU.

Machine code lies in `$SYNTONY_CACHE` (default `~/.cache/syntony`), under a hash of the source, the architecture and the
compiler; it is written beside and renamed, so that processes may compile at once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from syntony import _core
from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda.launch import Room, Sizes, argument, slot_addresses
from syntony.collectives.cuda.one_lane import one_lane
from syntony.collectives.cuda.source import HEADERS, ROOT, Source, generate
from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.program import Program

THREADS = 512
SLICE_BYTES = 1 << 16
OPTIONS = ("--std=c++20", "-fmad=false")
"""Without fused multiply-adds, which the CPU's kernels do not have either."""

Blocks = Mapping[int, Any]
"""Block of the collective -> the array that holds it on a rank."""


class GpuError(RuntimeError):
    """What a GPU, its driver or its compiler refuses; one sentence."""


def cupy() -> Any:
    """The module; GpuError where it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise GpuError(
            f"generated kernels need cupy (pip install 'syntony[cuda]'), which cannot be imported: {error}"
        ) from None
    return cupy


def cache_folder() -> Path:
    """Where machine code is kept."""
    return Path(os.environ.get("SYNTONY_CACHE") or Path.home() / ".cache" / "syntony")


def machine_code(source: Source, arch: str) -> bytes:
    """The cubin of a source for an architecture ("sm_90"): from the cache, or compiled and put there."""
    try:
        nvrtc = cupy().cuda.nvrtc
        version = nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, GpuError):
            raise
        raise GpuError(f"NVRTC, the run-time compiler of CUDA, cannot be loaded: {first_line(error)}") from None
    headers = [(ROOT / name).read_bytes() for name in HEADERS]
    parts = [source.text.encode(), *headers, " ".join([arch, *OPTIONS, str(version)]).encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()
    kept = cache_folder() / f"{key[:40]}.cubin"
    if kept.exists():
        return kept.read_bytes()
    names = [name.encode() for name in HEADERS]
    program = nvrtc.createProgram(source.text, f"{source.kernel}.cu", headers, names)
    try:
        nvrtc.compileProgram(program, [*OPTIONS, f"-arch={arch}"])
        code = bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program).strip()
        raise GpuError(f"NVRTC refuses the kernel {source.kernel} for {arch}: {first_line(log or error)}") from None
    finally:
        nvrtc.destroyProgram(program)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as beside:
            beside.write(code)
        Path(beside.name).rename(kept)
    except OSError:
        pass  # a machine without a home compiles again the next time
    return code


def first_line(what: object) -> str:
    """Of an error that has many."""
    return next(iter(str(what).splitlines()), "unknown error")


@dataclass(frozen=True)
class Compiled:
    """A Program's kernels for one element type, in place and apart, for the GPUs of this process."""

    program: Program
    dtype: str
    op: str
    copy_all: bool

    @staticmethod
    def of(
        program: Program, dtype: str, op: str = "sum", *, fuse: bool | None = None, copy_all: bool = False
    ) -> Compiled:
        """Of a proven Program. `fuse`: its lanes become one per rank (default: where they can). `copy_all`: messages
        are copied even where they could be read where they lie.

        UsageError and ProgramError as `generate`; nothing is compiled before `bind`.
        """
        if fuse or (fuse is None and Tape.takes(program)):
            program = one_lane(program)
        return Compiled(program, dtype, op, copy_all)

    @cached_property
    def _sources(self) -> dict[bool, Source]:
        return {}

    def source(self, in_place: bool) -> Source:
        """The text for outputs that lie where the inputs do, or apart."""
        if in_place not in self._sources:
            self._sources[in_place] = generate(
                self.program, self.dtype, self.op, in_place=in_place, copy_all=self.copy_all
            )
        return self._sources[in_place]

    def bind(
        self,
        inputs: Sequence[Blocks],
        outputs: Sequence[Blocks],
        *,
        stripes: int | None = None,
        threads: int = THREADS,
        slice_bytes: int = SLICE_BYTES,
        seconds: float = 30.0,
    ) -> Bound:
        """The kernel for these arrays: per rank, the blocks it starts and ends with (contiguous arrays of cupy, torch
        or whatever `gpu_buffer_of` reads). `stripes`: default as many as fit. `seconds`: how long a wait may last.

        GpuError where the GPU cannot do it; UsageError for arrays that do not fit the collective.
        """
        return Bound(self, inputs, outputs, stripes, threads, slice_bytes, seconds)


class Bound:
    """A kernel with its arrays and its memory. Launches of one Bound must follow one another; the arrays stay alive."""

    def __init__(
        self,
        compiled: Compiled,
        inputs: Sequence[Blocks],
        outputs: Sequence[Blocks],
        stripes: int | None,
        threads: int,
        slice_bytes: int,
        seconds: float,
    ) -> None:
        self._cupy = cp = cupy()
        program = compiled.program
        blocks, elements, devices = _arrays(program, compiled.dtype, inputs, outputs)
        self._kept = (inputs, outputs)
        in_place = any(a == b != 0 for rank in blocks for a, b in rank)
        self.source = source = compiled.source(in_place)
        self._groups = _neighbours(devices)
        kernels: dict[range, Any] = {}
        fits = []
        for device, ranks in self._groups:
            with cp.cuda.Device(device):
                _peers(cp, device, devices)
                kernels[ranks] = _load(cp, source, device)
                at_once = _resident(cp, kernels[ranks], device, threads)
            lanes = sum(source.lanes[ranks.start : ranks.stop])
            needed = lanes * (stripes or 1)
            if at_once < needed:
                raise GpuError(
                    f"program '{program.name}' needs {needed} thread blocks on GPU {device}, which runs {at_once} at "
                    "once; in one lane per rank (fuse=True) it needs fewest"
                )
            fits.append(at_once // lanes)
        sizes = Sizes.of(program, elements, _core.itemsize(compiled.dtype), slice_bytes)
        self.stripes = max(1, min(stripes or min(fits), sizes.slices))
        room = Room.of(source, sizes, self.stripes)
        self._memory: list[Any] = []

        def own(rank: int, size: int) -> int:
            with cp.cuda.Device(devices[rank]):
                self._memory.append(cp.zeros(max(size, 16), np.uint8))
            return int(self._memory[-1].data.ptr)

        ranks_of = range(program.ranks)
        flags = np.array([own(rank, room.flags[rank]) for rank in ranks_of], np.uint64)
        fifos = np.array([own(rank, room.fifos[rank]) for rank in ranks_of], np.uint64)
        scratch = [own(rank, room.scratch[rank]) for rank in ranks_of]
        slots = slot_addresses(program, sizes, blocks, scratch)
        # Every GPU can write it, and the host can read it while they run.
        self._trouble = cp.cuda.alloc_pinned_memory(8)
        self._troubled = np.frombuffer(self._trouble, np.uint64, 1)
        self._troubled[0] = 0
        self._launches: list[tuple[int, Any, int, int, Any]] = []
        for device, ranks in self._groups:
            with cp.cuda.Device(device):
                tables = [cp.asarray(table) for table in (slots, sizes.chunks, fifos, flags)]
                self._memory += tables
                given = argument(
                    source, sizes, slots=tables[0].data.ptr, chunks=tables[1].data.ptr, fifos=tables[2].data.ptr,
                    flags=tables[3].data.ptr, trouble=self._trouble.ptr, seconds=seconds,
                    stripes=self.stripes, ranks=ranks,
                )  # fmt: skip
                grid = int(given["lanes"]) * self.stripes
                self._launches.append((device, kernels[ranks], grid, threads, given))
        for device, _ in self._groups:
            cp.cuda.Device(device).synchronize()  # what was zeroed is zero for every stream

    def launch(self) -> None:
        """On each GPU's current stream. Returns at once; GpuError when an earlier launch was given up."""
        self.check()
        cuda = self._cupy.cuda
        for device, kernel, blocks, threads, given in self._launches:
            parameters = np.array([given.ctypes.data], np.uintp)  # the struct by value; read before the call returns
            with cuda.Device(device):
                stream = cuda.get_current_stream().ptr
                cuda.driver.launchKernel(kernel.ptr, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.ctypes.data, 0)

    def check(self) -> None:
        """GpuError when a launch that has ended was given up, because a wait lasted too long. Results are void then."""
        row = int(self._troubled[0])
        if row:
            raise GpuError(f"{self.source.program.where(row - 1)} waited too long for another rank; bind again")


def _arrays(
    program: Program, dtype: str, inputs: Sequence[Blocks], outputs: Sequence[Blocks]
) -> tuple[list[list[tuple[int, int]]], list[int], list[int]]:
    """Per rank the addresses of each block, the blocks' elements, and each rank's GPU."""
    from syntony.collectives.buffers import gpu_buffer_of

    count = int(program.chunks[:, 0].max(initial=0)) + 1
    elements = [-1] * count
    devices, addresses = [], []
    for rank in range(program.ranks):
        found: list[tuple[int, int]] = []
        on: set[int] = set()
        for block in range(count):
            pair = [0, 0]
            for side, (given, name) in enumerate(((inputs[rank], "input"), (outputs[rank], "output"))):
                if block not in given:
                    continue
                what = f"block {block} of rank {rank}'s {name}"
                buffer = gpu_buffer_of(given[block], what, writable=name == "output")
                if buffer.dtype != dtype:
                    raise UsageError(f"{what} holds {buffer.dtype}, not {dtype}")
                if elements[block] not in (-1, buffer.elements):
                    raise UsageError(f"{what} has {buffer.elements} elements, elsewhere {elements[block]}")
                elements[block] = buffer.elements
                pair[side] = buffer.address
                on.add(buffer.device)
            found.append((pair[0], pair[1]))
        if len(on) != 1:
            raise UsageError(f"rank {rank} has arrays on {len(on)} GPUs; all of a rank's arrays lie on one")
        devices.append(on.pop())
        addresses.append(found)
    _complete(program, addresses)
    return addresses, [max(size, 0) for size in elements], devices


def _complete(program: Program, addresses: list[list[tuple[int, int]]]) -> None:
    for rank, space, chunk in program.slots.tolist():
        block = int(program.chunks[chunk, 0])
        if space < 2 and not addresses[rank][block][space]:
            raise UsageError(f"rank {rank} needs an array for block {block} of its {('input', 'output')[space]}")


def _neighbours(devices: list[int]) -> list[tuple[int, range]]:
    """Each GPU with the ranks that it runs, which are numbered consecutively."""
    groups: list[tuple[int, range]] = []
    for rank, device in enumerate(devices):
        if groups and groups[-1][0] == device:
            groups[-1] = (device, range(groups[-1][1].start, rank + 1))
        elif any(device == other for other, _ in groups):
            raise UsageError(f"the ranks on GPU {device} are not numbered consecutively")
        else:
            groups.append((device, range(rank, rank + 1)))
    return groups


def _peers(cp: Any, device: int, devices: list[int]) -> None:
    for other in set(devices) - {device}:
        if not cp.cuda.runtime.deviceCanAccessPeer(device, other):
            raise GpuError(f"GPU {device} cannot reach the memory of GPU {other}; generated kernels need that")
        try:
            cp.cuda.runtime.deviceEnablePeerAccess(other)
        except cp.cuda.runtime.CUDARuntimeError as error:
            if "PeerAccessAlreadyEnabled" not in str(error):
                raise GpuError(f"GPU {device} cannot reach GPU {other}: {first_line(error)}") from None


def _load(cp: Any, source: Source, device: int) -> Any:
    arch = f"sm_{cp.cuda.Device(device).compute_capability}"
    module = cp.cuda.function.Module()
    module.load(machine_code(source, arch))
    return module.get_function(source.kernel)


def _resident(cp: Any, kernel: Any, device: int, threads: int) -> int:
    """Blocks that run at once on an otherwise idle GPU."""
    per_processor = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.ptr, threads, 0)
    return int(per_processor) * int(cp.cuda.Device(device).attributes["MultiProcessorCount"])

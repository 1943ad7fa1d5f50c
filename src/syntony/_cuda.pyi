"""
The CUDA executor: Programs on GPUs. Built where there is nvcc; importable without a GPU or a driver.

Addresses and streams are integers, as cupy, torch and ctypes give them. All errors of CUDA are RuntimeError.
"""

from collections.abc import Sequence
from typing import TypedDict, overload

import syntony._core



class Facts(TypedDict):
    name: str
    pci: str
    architecture: str
    processors: int
    memory: int
    multicast: bool
    driver: int
    runtime: int

class Lowered(TypedDict):
    bases: list[tuple[int, int, int]]
    scratch_bytes: int
    lanes: int
    instructions: int
    blocks: int
    slices: int
    instances: int

class Trouble(TypedDict):
    kind: str
    launch: int
    """The executor's launches count from 1."""
    lane: int
    instruction: int
    slice: int
    peer: int | None

PROTOCOLS: tuple[str, ...]
"""How messages travel: simple, ll, ll128 (csrc/cuda/device/kernel_form.hpp)."""

def device_count() -> int:
    """GPUs that this process can use; 0 where there is no driver."""

def describe(device: int) -> Facts:
    """
    Facts of a GPU for reports: architecture as "9.0", memory in bytes, versions of CUDA as 13000 for 13.0.
    """

def use(device: int) -> None:
    """
    Makes the GPU the calling thread's current device, for libraries that ask for it.
    """

def pull(collective: str, ranks: int, root: int = 0) -> syntony._core.Program:
    """
    Direct exchange through peer memory: each rank reads what it must end with. all_reduce: one shot.
    """

def pull_two_shot(ranks: int) -> syntony._core.Program:
    """
    all_reduce: rank c sums share c of what all ranks have, and writes the sum to every rank's output.
    """

def lowered(program: syntony._core.Program, rank: int, dtype: str, op: str, elements: Sequence[int], shape: ArenaShape, protocol: str = 'simple', blocks: int = 1, instances: int = 0, bulk: bool = False) -> Lowered:
    """
    The Plan that would be made, without a GPU. ValueError where there could be none.
    """

def check_switched(collective: str, dtype: str, op: str, shape: SwitchedShape) -> None:
    """Raises ValueError where switches cannot do it."""

class Memory:
    """
    Zeroed memory of a GPU, from cudaMalloc. Reads and writes return when the bytes are there.
    """

    def __init__(self, device: int, bytes: int) -> None: ...

    @property
    def address(self) -> int: ...

    def __len__(self) -> int: ...

    def write(self, bytes: bytes, offset: int = 0) -> None: ...

    def read(self, bytes: int, offset: int = 0) -> bytes: ...

    def copy_from(self, other: Memory, stream: Stream) -> None:
        """
        CUDA's own copy of all bytes of `other`, which has as many, in the stream.
        """

class PinnedMemory:
    """Zeroed memory of the host that a GPU's copies read and write directly."""

    def __init__(self, bytes: int) -> None: ...

    @property
    def address(self) -> int: ...

def copy(device: int, to: int, from_: int, bytes: int, stream: int) -> None:
    """Copies between memories of GPU and host, in the stream."""

def capturing(device: int, stream: int) -> bool:
    """
    Whether the stream is being captured into a graph instead of being run.
    """

class ImportedMemory:
    """
    Another process's device memory; its address is valid while this object lives.
    """

    def __init__(self, device: int, exported: bytes) -> None: ...

    @property
    def address(self) -> int: ...

def export_memory(address: int) -> bytes:
    """
    A handle to this device memory for ImportedMemory in another process on this host (CUDA IPC).
    """

class Graph:
    """A captured stream."""

    def launch(self, stream: Stream) -> None: ...

class Stream:
    """A stream of a GPU that waits for no other."""

    def __init__(self, device: int) -> None: ...

    @property
    def handle(self) -> int: ...

    def synchronize(self) -> None: ...

    def wait_for(self, other: Stream) -> None:
        """
        Work from here on waits for what `other` holds now; a capture of `other` spreads to this stream.
        """

    def begin_capture(self) -> None: ...

    def end_capture(self) -> Graph: ...

class Event:
    """A point in a stream, with its time."""

    def __init__(self, device: int) -> None: ...

    def record(self, stream: int) -> None: ...

    def precede(self, stream: int) -> None:
        """
        Work that the stream gets from here on waits for what was recorded last, if anything was.
        """

    @property
    def done(self) -> bool:
        """
        Whether all that was recorded has ended, with an error or without; synchronize() raises the error.
        """

    def synchronize(self) -> None: ...

    def seconds_since(self, earlier: Event) -> float: ...

class ArenaShape:
    """The FIFOs between the ranks of a group; all ranks have the same."""

    def __init__(self, ranks: int, channels: int = 16, depth: int = 4, slot_bytes: int = 262144, line_bytes: int = 32768) -> None: ...

    @property
    def ranks(self) -> int: ...

    @property
    def channels(self) -> int: ...

    @property
    def bytes(self) -> int:
        """Of one rank's arena."""

class Executor:
    """
    One rank's side of a group of GPUs. `ranks_on_device` of them share the GPU and run on it at the same time.
    """

    def __init__(self, device: int, rank: int, shape: ArenaShape, ranks_on_device: int = 1) -> None: ...

    @property
    def arena(self) -> int:
        """The address of what peers write."""

    @property
    def blocks(self) -> int:
        """
        Thread blocks of this rank that fit on the GPU beside those of the other ranks there.
        """

    def connect(self, arenas: Sequence[int]) -> None:
        """Every rank's arena, by rank: its address in this process."""

    def set_timeout(self, seconds: float) -> None:
        """Deadline of every launch from here on; 0: none."""

    def launch(self, plan: Plan, pointers: Sequence[int], stream: int) -> None:
        """
        One kernel and nothing else, so that it can be captured. `pointers` as plan.bases; 0 for this rank's scratch
        means the plan's. All ranks launch the same plans in the same order.
        """

    def wait(self) -> None:
        """
        Waits until all launches have ended; those of graphs are not known here.
        """

    def abort(self) -> None:
        """Lanes stop where they are; the group must be made anew."""

    def trouble(self) -> Trouble | None:
        """
        Why a launch ended early, and which peer it waited for; None if none did.
        """

class Plan:
    """
    A lowered Program on a GPU: made once, launched often. Keep it for as long as launches or graphs use it.

    elements   of each block
    blocks     thread blocks; 0: all that the executor has
    instances  how many times the Program runs at once, each on its share of every chunk; 0: as many
               as pay; else the same on all ranks
    bulk       copies by the copy engine of Hopper and later. ValueError elsewhere, or with another
               protocol than simple
    """

    def __init__(self, executor: Executor, program: syntony._core.Program, dtype: str, op: str, elements: Sequence[int], protocol: str = 'simple', blocks: int = 0, instances: int = 0, bulk: bool = False) -> None: ...

    @property
    def bases(self) -> list[tuple[int, int, int]]:
        """
        The pointers that a launch must bring: (rank, space, block); space 0 input, 1 output, 2 scratch.
        """

    @property
    def scratch(self) -> int:
        """The address of this rank's scratch; 0 when it needs none."""

    @property
    def lanes(self) -> int: ...

    @property
    def blocks(self) -> int: ...

    @property
    def slices(self) -> int: ...

    @property
    def instances(self) -> int: ...

class SwitchedShape:
    """
    Staging slots and flags of a group behind NVLink switches; all ranks have the same.
    """

    def __init__(self, ranks: int, blocks: int = 16, slot_bytes: int = 131072) -> None: ...

    @property
    def bytes(self) -> int:
        """Of one rank's multicast memory."""

class Multicast:
    """
    Memory of several GPUs behind one address. Rank 0 makes it, the others open what it exports; all join,
    then all bind. ValueError where the GPU cannot join one.
    """

    @overload
    def __init__(self, device: int, ranks: int, bytes: int) -> None: ...

    @overload
    def __init__(self, device: int, ranks: int, bytes: int, exported: bytes) -> None: ...

    def exported(self) -> bytes:
        """A handle for the constructor in another process on this host."""

    def join(self) -> None: ...

    def bind(self) -> None: ...

class SwitchedGroup:
    """
    One rank's side of all_reduce, all_gather and reduce_scatter through NVLink switches.
    """

    def __init__(self, memory: Multicast, rank: int, shape: SwitchedShape) -> None: ...

    def launch(self, collective: str, dtype: str, op: str, input: int, output: int, elements: int, stream: int) -> None:
        """
        `elements` of one block of the collective. All ranks launch the same, in the same order.
        """

    def set_timeout(self, seconds: float) -> None:
        """Deadline of every launch from here on; 0: none."""

    def abort(self) -> None:
        """It stops where it is; the group must be made anew."""

    def trouble(self) -> Trouble | None:
        """
        As Executor.trouble; `lane`: thread block, `instruction`: 0 staging filled, 1 summed, 2 done.
        """

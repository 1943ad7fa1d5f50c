"""
The runtime: Programs, their execution, groups of ranks, and arithmetic on buffers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import numpy
from numpy.typing import NDArray
from typing_extensions import CapsuleType



class CollectiveFacts(TypedDict):
    """What is different about a collective (csrc/core/program/collective.hpp)."""

    reduces: bool
    root_gives: bool
    root_takes: bool
    by_source: bool
    by_destination: bool

class OpcodeFacts(TypedDict):
    """What an opcode touches (csrc/core/program/opcode.hpp)."""

    reads: bool
    writes: bool
    receives: bool
    sends: bool
    one_sided: bool

DTYPES: tuple[str, ...]

REDUCE_OPS: tuple[str, ...]

def itemsize(dtype: str) -> int:
    """Bytes of one element of `dtype`."""

def supports(dtype: str, op: str) -> bool:
    """True when `op` has a meaning for elements of `dtype`."""

def reduce(dtype: str, op: str, dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], sources: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], past: bool = False, paged: bool = False, also: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')] | None = None) -> None:
    """
    dst = sources[0] op sources[1] op ..., from left to right, over contiguous uint8 views of equal size.
    `dst` may be one of the sources, but not if it is written `past` the caches. `paged`: sources are read from
    several pages at a time. `also` gets what goes past the caches, too, through them. Formats narrower than float32
    round once, at the end.
    """

def scale(dtype: str, dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: float) -> None:
    """
    dst = src * factor; floating point and complex only. `dst` may be `src`.
    """

def divide(dtype: str, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], divisor: int) -> None:
    """
    data = data / divisor in place (divisor >= 1); integers truncate toward zero.
    """

def kernel_isa() -> str:
    """The instruction set in use: "avx512", "avx2" or "portable"."""

def stream_copy(dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """
    dst = src past the caches (AVX-512 or AVX2 where there are; else an ordinary copy), over uint8 views of equal
    size, whole 64-byte lines; `dst` begins at a line.
    """

INSTRUCTION_FIELDS: tuple[str, ...]

OPCODES: dict[str, OpcodeFacts]

class Program:
    """
    Who does what: one agent per rank, lanes of instructions over slots. Immutable and validated; whether it is right is the checker's word.

    The tables are read-only views of the core's memory; synth/model/program.py describes them.
    """

    def __init__(self, *, name: str, collective: str, root: int, ranks: int, chunks: object, slots: object, instructions: object, operands: object, dependencies: object, fifo_depth: int = 1, out_of_place: bool = True, in_place: bool = True, rounds_per_hop: bool = False) -> None:
        """
        From tables, as lists of rows or arrays; rows of instructions may leave out the last field, `skew`, when it is 0. ProgramError names the first value that cannot be.
        """

    def columns(self) -> dict[str, Any]:
        """The keyword arguments of the constructor that give this Program again."""

    def replace(self, **changes: Any) -> Program:
        """The same Program with some of `columns()` changed."""

    @property
    def chunks(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]: ...

    @property
    def slots(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]: ...

    @property
    def instructions(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]: ...

    @property
    def operands(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]: ...

    @property
    def dependencies(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]: ...

    def field(self, name: str) -> Annotated[NDArray[numpy.int32], dict(writable=False)]:
        """
        One column of the instructions, by its name in INSTRUCTION_FIELDS; shape (I,).
        """

    @property
    def space_start(self) -> Annotated[NDArray[numpy.int32], dict(writable=False)]:
        """
        (ranks, 3): the row of `slots` where the agent's space begins; the row of a slot is start + index.
        """

    @property
    def lane_start(self) -> tuple[NDArray[numpy.int32], NDArray[numpy.int32]]:
        """
        Two columns over all lanes in order: the lane's first row of `instructions`, and its agent.
        """

    @property
    def position(self) -> NDArray[numpy.int32]:
        """(I,) the position of each instruction in its lane."""

    def space_size(self, agent: int, space: int) -> int:
        """How many slots the agent has in the space."""

    def where(self, row: int) -> str:
        """
        How people are told about a row of `instructions`: "rank 2, lane 0, instruction 5 (recv_reduce)".
        """

    def without_skew(self) -> Program:
        """
        The same Program, slice after slice: as right as this one, and with many slices mostly slower.
        """

    @property
    def name(self) -> str: ...

    @property
    def collective(self) -> str: ...

    @property
    def ranks(self) -> int: ...

    @property
    def root(self) -> int: ...

    @property
    def fifo_depth(self) -> int:
        """Messages that one connection must be able to hold."""

    @property
    def out_of_place(self) -> bool:
        """Right when input and output are disjoint memory."""

    @property
    def in_place(self) -> bool:
        """
        Right when input and output slots of the same chunk are the same memory.
        """

    @property
    def rounds_per_hop(self) -> bool:
        """16- and 8-bit floats are rounded at every reduction, not once."""

    @property
    def channels(self) -> int:
        """1 + the highest channel in use."""

    @property
    def message_slots(self) -> int:
        """The most slots of a message."""

    @property
    def one_sided(self) -> bool:
        """Whether it uses peer_read or peer_write."""

    @property
    def skewed(self) -> bool:
        """
        Whether some instruction works on earlier slices than its lane's iteration.
        """

    @property
    def needs_size_matrix(self) -> bool: ...

    @property
    def hash(self) -> int:
        """
        64-bit FNV-1a over every field: what ranks agree on. No proof rests on it.
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Slot:
    """A place for one chunk: space (0 input, 1 output, 2 scratch) and index."""

    @property
    def space(self) -> int: ...

    @property
    def index(self) -> int: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class ProgramBuilder:
    """
    Writes a Program from one logical order of moves; allocates lanes and dependencies.
    """

    def __init__(self, name: str, collective: str, ranks: int, root: int, chunks: Sequence[tuple[int, int]]) -> None:
        """`chunks`: (block, weight) rows."""

    def input(self, rank: int, chunk: int) -> Slot: ...

    def output(self, rank: int, chunk: int) -> Slot: ...

    def scratch(self, rank: int, chunk: int) -> Slot:
        """A new slot, as large as `chunk`."""

    def place(self, rank: int, chunk: int) -> Slot:
        """The output slot of `chunk`, else a new scratch slot."""

    def copy(self, rank: int, dst: Slot, src: Slot) -> None: ...

    def reduce(self, rank: int, dst: Slot, sources: Sequence[Slot]) -> None:
        """dst = sources[0] + sources[1] + .., in this order, rounded once."""

    def transfer(self, src_rank: int, src: Slot, dst_rank: int, dst: Slot, channel: int = 0, count: int = 1) -> None:
        """`count` consecutive slots go in one message."""

    def transfer_reduce(self, src_rank: int, src: Slot, dst_rank: int, dst: Slot, operand: Slot, channel: int = 0, count: int = 1) -> None:
        """dst = message + operand."""

    def append(self, rank: int, lane: int, opcode: int, dst: tuple[int, int], src: tuple[int, int], count: int, recv_peer: int, send_peer: int, channel: int, operands: Sequence[tuple[int, int]] = []) -> None:
        """
        One instruction into a lane of the caller's choice; slots are (space, index).
        """

    def skew(self, slices: int) -> None:
        """The moves that follow are so many slices behind."""

    def finish(self) -> Program:
        """The Program so far, validated."""

class Algorithm:
    """A builder of Programs: an entry of the table `algorithms()`."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def collectives(self) -> tuple[str, ...]: ...

    def __repr__(self) -> str: ...

def algorithms() -> list[Algorithm]:
    """The table of C++ builders."""

def algorithm_names(collective: str) -> list[str]:
    """
    Whom one may ask for by name in this collective, beside `auto` and what is loaded.
    """

def automatic_choice(collective: str, bytes: int, boxes: Sequence[Sequence[int]], crowded: bool = False) -> tuple[str, str]:
    """
    The algorithm that `auto` means among the ranks of these hosts where no table says otherwise, and why. `crowded`: ranks share processors.
    """

def build(name: str, collective: str, ranks: int, root: int = 0, boxes: Sequence[Sequence[int]] | None = None, shares: Sequence[int] | None = None) -> Program:
    """
    The Program of a named algorithm; `boxes` (ranks of each box) shapes `hierarchical`, `shares` (by rank) `two_shot`.
    """

def shares_for(rates: Sequence[float]) -> list[int]:
    """
    How much of an all_reduce by `two_shot` each rank should sum, for what it can send and receive per second.
    """

def shared_choices(collective: str, ranks: int, bytes: int) -> list[tuple[str, bool]]:
    """
    The ways in which algorithm `shared` may move blocks of so many bytes where peers' memory can be read, the usual
    one first: `exchange` (copies through the cache, in pieces of shared_piece_bytes()), `two-shot` (the same, of sums
    in shares) or `reference` (straight from the peers' buffers); and whether outputs are written past the caches.
    Where there are several, a group takes the one that it has measured to be the fastest.
    """

def shared_piece_bytes(ranks: int) -> int:
    """The most that one of so many ranks shows in a round."""

def shared_stages_swap(ranks: int) -> bool:
    """
    Whether so many ranks swap the buffers in which they show pieces, so that each writes what it has read.
    """

def shared_turn_bytes(ranks: int, bytes: int) -> int:
    """
    Through how many bytes of each of its two buffers one of so many ranks rotates pieces of so many bytes that it shows; 0 if it swaps them.
    """

COLLECTIVES: dict[str, CollectiveFacts]

class CommunicationError(RuntimeError):
    """Something went wrong between ranks; the sentence names them and the operation."""

    kind: str
    """mismatch, timeout, dead, aborted or system."""
    ranks: tuple[int, ...]
    """The guilty ranks, as far as known."""

class Process:
    """
    The runtime in this operating system process: one progress engine for all groups.
    """

    def __init__(self) -> None: ...

    @property
    def forked(self) -> bool: ...

    def close(self) -> None:
        """Ends all groups and waits for their callbacks."""

    def capsule(self) -> CapsuleType:
        """For syntony._torch."""

class Work:
    """An operation in flight."""

    @property
    def done(self) -> bool: ...

    @property
    def source(self) -> int:
        """The rank that a message came from."""

    @property
    def sequence(self) -> int: ...

    def on_done(self, callback: Callable[[], object]) -> None:
        """
        Calls it once, when done, in error too: at once if it is, else on a thread that others do not wait for.
        """

    def wait(self, timeout: float | None = None) -> bool:
        """
        Drives the operation until it is done and raises its error. False if `timeout` seconds passed first.
        """

class Communicator:
    """One rank's end of a group. Buffers are addresses."""

    def __init__(self, process: Process, bootstrap: object, timeout: float, name: str, job_ranks: Sequence[int] = [], tuner: object | None = None) -> None:
        """`tuner` is kept for ever, as groups may outlive the interpreter."""

    @staticmethod
    def of_capsule(process: Process, capsule: object) -> Communicator:
        """The group of a torch backend (syntony._torch)."""

    def capsule(self) -> object:
        """For syntony._torch."""

    def split(self, color: int | None, key: int, timeout: float, name: str) -> Communicator:
        """
        A group of those with the same color, or None without one. Collective; timeout 0: the group's.
        """

    def shrink(self, excluded: Sequence[int], timeout: float, name: str) -> Communicator:
        """
        A group of those that live and are not excluded. Collective over them; this group is shut down.
        """

    @property
    def members(self) -> list[int]:
        """By rank: its rank in the group that this one was made out of."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def boxes(self) -> list[list[int]]:
        """The ranks of each host."""

    @property
    def crowded(self) -> bool:
        """
        True if some ranks share processors: they are more than the CPUs that they may use.
        """

    @property
    def sequence(self) -> int: ...

    def record(self) -> bytes:
        """A dump (recorder_dump.hpp) of this group alone."""

    def counters(self) -> str:
        """The counters of this group as Prometheus text."""

    def blocks_of(self, collective: str, root: int, input: int, inputs: Sequence[int], output: int, outputs: Sequence[int], element_bytes: int, even: bool) -> list[tuple[int, int, int]]:
        """
        The blocks (input address, output address, elements) of a collective at this rank, of arrays that begin at `input` and `output` (0: none here) and consist of parts of so many elements.
        """

    def run(self, *, collective: str, dtype: str, op: str = 'sum', root: int = 0, blocks: Sequence[tuple[int, int, int]], algorithm: str = 'auto', priority: str | None = None, partition: int = 0, timeout: float = 0.0, async_op: bool = False, average: bool = False, factor: float = 1.0, even: bool = True, keep_alive: object | None = None) -> Work | None:
        """
        Starts a collective over blocks (input address, output address, elements).
        """

    def run_even(self, collective: str, input: object, output: object, op: str, options: Mapping[str, object], /) -> bool:
        """
        The call that is made nearly always, with arrays in even parts; waits for it. False, and nothing done, for any other call.
        """

    def all_reduce_together(self, *, dtype: str, op: str = 'sum', buffers: Sequence[tuple[int, int, int]], algorithm: str = 'auto', priority: str | None = None, timeout: float = 0.0, async_op: bool = False, average: bool = False, keep_alive: object | None = None) -> Work | None:
        """
        One all_reduce over buffers (input address, output address, elements), packed and unpacked.
        """

    def barrier(self, priority: str | None = None, timeout: float = 0.0, async_op: bool = False) -> Work | None: ...

    def send(
        self,
        address: int,
        bytes: int,
        destination: int,
        tag: int = 0,
        timeout: float = 0.0,
        async_op: bool = False,
        keep_alive: object | None = None,
    ) -> Work:
        pass

    def receive(
        self,
        address: int,
        bytes: int,
        source: int,
        tag: int = 0,
        timeout: float = 0.0,
        async_op: bool = False,
        keep_alive: object | None = None,
    ) -> Work:
        """`source` -1 receives from any rank."""

    def add_program(self, name: str, program: Program) -> None:
        """
        Makes a Program available as an algorithm. The caller has had it proven.
        """

    def set_size_ranges(self, name: str, collective: str, ranges: Sequence[tuple[int, str, str]]) -> None:
        """
        Makes `name` an algorithm that depends on the size. `ranges` has (last size in bytes, algorithm, reason) in ascending order; the last algorithm also serves larger sizes. Every rank must pass the same.
        """

    def set_levels(self, levels: Sequence[Sequence[int]]) -> None:
        """
        Which ranks are near each other, for `hierarchical`: each rank once. Every rank must pass the same.
        """

    def set_shares(self, shares: Sequence[int]) -> None:
        """
        How much of an all_reduce by `two_shot` each rank sums, by rank. Every rank must pass the same.
        """

    def choice(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = 'auto') -> tuple[str, str]:
        """The algorithm that a call would run, and why."""

    @property
    def notes(self) -> list[str]:
        """
        What the ranks' tuners told each other when the group was made, by rank.
        """

    def program_hash(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = 'auto') -> int:
        """Of program_for's, at once."""

    def program_for(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = 'auto') -> Program:
        """The Program that a call would run."""

    def abort(self, why: str) -> None: ...

    def shutdown(self) -> None: ...

    def set_priority(self, priority: str | None) -> None: ...

    def set_canonical(self, canonical: bool) -> None: ...

    def set_timeout(self, timeout: float) -> None: ...

    @property
    def timeout(self) -> float: ...

def usable_cpus(root: str = '/') -> int:
    """
    How many CPUs' worth of time this process may use: its affinity, bounded by the quotas of its control groups.
    """

def contiguous(array: object) -> tuple[int, int, str, bool] | None:
    """
    (address, elements, dtype, writable) of a torch tensor or of what has the buffer protocol; None unless it is contiguous and its elements are ours.
    """

def allocate(bytes: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    Zeros in page-aligned memory that other processes of the host could map.
    """

def place_of(address: int, bytes: int) -> tuple[int, int] | None:
    """
    Descriptor and offset of memory from `allocate`; None for other memory.
    """

def dump_records(folder: str) -> list[str]:
    """
    Writes `syntony_rank_N` for each rank in this process; returns the paths.
    """

def counters() -> str:
    """The counters of all groups of this process as Prometheus text."""

"""The compiled core: Programs, their execution, graph algorithms, and arithmetic on buffers."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

# ---- kernels --------------------------------------------------------------------------------------------------------
# Element-wise arithmetic on contiguous, one-dimensional uint8 buffers in host memory (`array.view(np.uint8)`); anything
# that speaks DLPack or the buffer protocol will do. All raise ValueError for what has no meaning.

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

DTYPES: tuple[str, ...]
REDUCE_OPS: tuple[str, ...]

def itemsize(dtype: str) -> int:
    """Bytes of one element of `dtype`."""

def supports(dtype: str, op: str) -> bool:
    """True when `op` has a meaning for elements of `dtype`: no order on complex numbers, no bits in floats, and only
    min and max for float8_e8m0fnu, which holds bare exponents."""

def reduce(dtype: str, op: str, dst: _Bytes, sources: Sequence[_Bytes]) -> None:
    """dst = sources[0] op sources[1] op ..., from left to right; all of equal size. `dst` may be one of the sources.

    Formats narrower than float32 accumulate in float32 and round once, at the end, to nearest even. Integers wrap.
    NaN comes out as the format's one canonical NaN; a single source is copied as it is.
    """

def scale(dtype: str, dst: _Bytes, src: _Bytes, factor: float) -> None:
    """dst = src * factor; floating point and complex only. `dst` may be `src`."""

def divide(dtype: str, data: _Bytes, divisor: int) -> None:
    """data = data / divisor in place (divisor >= 1); integers truncate toward zero."""

def stream_copy(dst: _Bytes, src: _Bytes) -> None:
    """dst = src past the caches (AVX-512 or AVX2 where there are), whole 64-byte lines; `dst` begins at a line."""

def kernel_isa() -> str:
    """The instruction set in use: "avx512", "avx2" or "portable". SYNTONY_ISA may name a lesser one than the best."""

# ---- aggregation ----------------------------------------------------------------------------------------------------
# A switch that adds, in software, and its workers (csrc/emulation/aggregator). Number formats:
# topologies/aggregator.py.

_Floats = np.ndarray[Any, np.dtype[np.float32]]

def sum_through_switch(number_format: str, dst: _Floats, sources: Sequence[_Floats]) -> None:
    """dst = the float32 sum that workers holding `sources` get from a switch that adds in `number_format`: scaled,
    added, rounded and scaled back as they and the switch do it together. ValueError for a format without float32."""

def carries(number_format: str, dtype: str) -> bool:
    """Whether elements of `dtype` can travel to a switch in `number_format`."""

class Aggregator:
    """A switch that adds, in software: one thread, any number of jobs."""

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        slots: int = 64,
        slot_bytes: int = 32768,
        number_formats: Sequence[str] = (),
        tenants: int = 1,
        shared: bool = False,
    ) -> None:
        """Listens. `number_formats`: those it adds, all when empty. ValueError for what cannot be, CommunicationError
        when the address cannot be used."""

    @property
    def address(self) -> str:
        """ADDRESS:PORT where workers connect."""

    def run(self) -> None:
        """Serves until stop() or a signal handler that raises."""

    def stop(self) -> None:
        """Makes run() return soon; from any thread."""

class AggregationClient:
    """A worker's end of a job at an aggregator. All raise CommunicationError for what goes wrong between ranks."""

    def __init__(self, address: str, token: bytes, rank: int, ranks: int, timeout: float) -> None:
        """Joins the job that the 16 bytes of `token` name. Collective: returns when all workers have come."""

    def all_reduce(
        self, number_format: str, dtype: str, input: int, output: int, elements: int, timeout: float
    ) -> None:
        """The memory at address `output` = the sum of all workers' at `input` (the same or apart). Collective."""

    def close(self) -> None:
        """Leaves the job."""

    @property
    def window(self) -> int:
        """Chunks that may be on their way at once."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of a chunk."""

# ---- graphs ---------------------------------------------------------------------------------------------------------
# Directed multigraphs as columns: arc i leads from tails[i] to heads[i] (int32, C-contiguous). All raise ValueError
# naming an arc or node that does not exist.

_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]
_Doubles = np.ndarray[Any, np.dtype[np.float64]]
_Flags = np.ndarray[Any, np.dtype[np.bool_]]

class Forest:
    """Trees as columns, edge by edge.

    Tree t stands for multiplicity[t] equal ones from root[t]; its edges are offset[t] .. offset[t + 1]: from tail to
    head, both receivers, over links route_link[route_offset[r] .. route_offset[r + 1]] for r = route.
    """

    @property
    def root(self) -> np.ndarray[Any, np.dtype[np.uint32]]: ...
    @property
    def multiplicity(self) -> _Int64s: ...
    @property
    def offset(self) -> _Int64s: ...
    @property
    def tail(self) -> np.ndarray[Any, np.dtype[np.uint32]]: ...
    @property
    def head(self) -> np.ndarray[Any, np.dtype[np.uint32]]: ...
    @property
    def route(self) -> np.ndarray[Any, np.dtype[np.uint32]]: ...
    @property
    def route_offset(self) -> _Int64s: ...
    @property
    def route_link(self) -> np.ndarray[Any, np.dtype[np.uint32]]: ...

def edge_depths(edges: int, tails: _Int64s, heads: _Int64s) -> _Int32s:
    """How far from its root each edge begins, of trees of `edges` edges each (over edges + 1 receivers) in turn."""

def pack_forest(nodes: int, tails: _Int32s, heads: _Int32s, capacities: _Int64s, trees: _Int64s) -> Forest:
    """Spanning trees over receivers 0..len(trees)-1 of a network whose other nodes relay, trees[r] of them from r.

    ValueError where they do not fit, or a relay takes in more or less than it sends out.
    """

class FractionalPacking:
    """Spanning trees of any weights, better the longer it runs (multiplicative weights).

    Receivers are nodes 0..len(owed)-1; r is the root of trees of weight owed[r] together. ValueError for a capacity
    that is not positive.
    """

    def __init__(self, nodes: int, tails: _Int32s, heads: _Int32s, capacities: _Doubles, owed: _Doubles) -> None: ...
    def run(self, phases: int, seconds: float, most_trees: int) -> bool:
        """Runs so many phases more, or until the seconds are over or so many trees are known; at least one phase.

        Whether all were run. ValueError where a root does not reach all receivers.
        """

    def cheapest(self, lengths: _Doubles) -> float:
        """What the shortest trees of all roots cost under these lengths, each times what its root owes.

        The trees are known from then on, with no weight.
        """

    def forest(self) -> Forest:
        """All trees found, each once."""

    @property
    def weights(self) -> _Doubles:
        """Of each tree, over all phases."""

    @property
    def lengths(self) -> _Doubles:
        """Of links, averaged over the phases."""

class Permutations:
    """Stages: stage s lasts length[s], and row r sends to column to[s * n + r] in it."""

    @property
    def length(self) -> _Int64s: ...
    @property
    def to(self) -> _Int32s: ...

def birkhoff(n: int, matrix: _Int64s) -> Permutations:
    """The n x n matrix as permutations that last as long as its largest row or column, in all.

    ValueError for a matrix of another size, a negative entry, or sums beyond 2^62.
    """

class ExchangePlan:
    """Pieces of blocks, one row each (csrc/solve/graph/exchange_plan.hpp); length[s] is stage s in bytes of a box."""

    @property
    def length(self) -> _Int64s: ...
    @property
    def stage(self) -> _Int32s: ...
    @property
    def source(self) -> _Int32s: ...
    @property
    def out(self) -> _Int32s: ...
    @property
    def into(self) -> _Int32s: ...
    @property
    def target(self) -> _Int32s: ...
    @property
    def offset(self) -> _Int64s: ...
    @property
    def bytes(self) -> _Int64s: ...

def plan_exchange(boxes: int, per_box: int, matrix: _Int64s) -> ExchangePlan:
    """Which bytes of an all_to_all_v go over which NIC in which stage; ranks are numbered box by box.

    ValueError for a matrix of another size, a negative entry, or sums beyond 2^62.
    """

def regraft(
    nodes: int,
    receivers: int,
    tails: _Int32s,
    heads: _Int32s,
    room: _Int64s,
    most: _Int64s,
    root: _Int64s,
    weight: _Int64s,
    tail: _Int64s,
    head: _Int64s,
    route_offset: _Int64s,
    route_link: _Int64s,
    rounds: int,
) -> Forest:
    """Trees over receivers 0..receivers-1, receivers - 1 edges each, mended after links were lost (-1 in route_link) or
    became too slow: link i should carry room[i] trees, and most[i] at most; what it carries is the caller's to count.

    ValueError where a receiver cannot be reached.
    """

class BalancedPaths:
    """Paths as columns: demand i takes link[offset[i] : offset[i + 1]]; `time` is what the fullest link needs. `prices`
    per link proved that no routing needs less than `proven`."""

    @property
    def offset(self) -> _Int64s: ...
    @property
    def link(self) -> _Int64s: ...
    @property
    def prices(self) -> _Doubles: ...
    @property
    def time(self) -> float: ...
    @property
    def proven(self) -> float: ...

def balanced_paths(
    nodes: int,
    tails: _Int32s,
    heads: _Int32s,
    capacities: _Doubles,
    source: _Int32s,
    target: _Int32s,
    weight: _Int64s,
    path_offset: _Int64s,
    path_link: _Int64s,
    time: float,
    tolerance: float,
    seconds: float,
) -> BalancedPaths:
    """One path per demand (weight[i] from source[i] to target[i]; those of one source together), balanced over the
    links. They start from path_link[path_offset[i] : path_offset[i + 1]], where that is not empty.

    time       weight / capacity that the fullest link has at least
    tolerance  how far above that is good enough
    seconds    at most; one round is made in any case
    """

class FlowNetwork:
    """A directed multigraph with int64 capacities and a flow in it, zero at first, that further calls continue."""

    def __init__(self, nodes: int, tails: _Int32s, heads: _Int32s, capacities: _Int64s) -> None:
        """Raises ValueError for a negative capacity, OverflowError where all capacities together exceed 2^63 - 1."""

    @property
    def nodes(self) -> int: ...
    @property
    def arcs(self) -> int: ...
    def augment(self, source: int, sink: int, limit: int | None = None) -> int:
        """Sends as much more as fits from source to sink (at most `limit`), by Dinic's algorithm; returns how much.

        To ask many sinks of one source, move what arrived at one on to the next: augment(last, next).
        """

    def set_capacities(self, capacities: _Int64s) -> None:
        """New capacities for all arcs, and the flow back to zero. Raises as the constructor."""

    def set_capacity(self, arc: int, capacity: int) -> None:
        """A new capacity for one arc; the flow stays. Raises ValueError where it would not fit."""

    def reset(self) -> None:
        """The flow back to zero."""

    def flow(self, arc: int) -> int:
        """What flows through the arc."""

    def flows(self) -> _Int64s:
        """What flows through each arc."""

    def reachable_from(self, source: int) -> _Flags:
        """Which nodes can still be sent to: after a maximum flow the smallest source side of a minimum cut."""

    def reaching(self, sink: int) -> _Flags:
        """Which nodes can still send to the sink: after a maximum flow the smallest sink side of a minimum cut."""

class ShortestPaths:
    """A directed graph with lengths (not negative) that answers how far its nodes are from one of them."""

    def __init__(self, nodes: int, tails: _Int32s, heads: _Int32s, lengths: _Doubles) -> None: ...
    def distances(self, source: int) -> _Doubles:
        """Per node the length of a shortest path from `source`; infinite where there is none.

        Whole numbers are exact as long as every distance stays below 2^53.
        """

# ---- programs -------------------------------------------------------------------------------------------------------
# Program v1 (program.hpp). All raise ValueError with a sentence that names agent, lane and instruction, or
# table and row.

_Table = np.ndarray[Any, np.dtype[np.int32]]

class ProgramColumns(TypedDict):
    """A Program as scalars and C-contiguous int32 tables. For type checkers only: at run time it is a dict.

    chunks (K, 2): block, weight
    slots (S, 3): agent, space (0 input, 1 output, 2 scratch), chunk; in order of agent, space, slot index
    instructions (I, 13): agent, lane, opcode, dst_space, dst_index, src_space, src_index, count, recv_peer, send_peer,
        channel, operand_count, dependency_count; in order of agent, lane, position
    operands (O, 2): space, index; concatenated in instruction order
    dependencies (D, 2): lane, instruction; concatenated in instruction order
    """

    name: str
    collective: str
    root: int
    ranks: int
    fifo_depth: int
    out_of_place: bool
    in_place: bool
    rounds_per_hop: bool
    chunks: _Table
    slots: _Table
    instructions: _Table
    operands: _Table
    dependencies: _Table

class Program:
    """Who does what: one agent per rank, lanes of instructions over slots. Immutable."""

    @staticmethod
    def from_columns(
        *,
        name: str,
        collective: str,
        root: int,
        ranks: int,
        fifo_depth: int,
        out_of_place: bool,
        in_place: bool,
        rounds_per_hop: bool,
        chunks: _Table,
        slots: _Table,
        instructions: _Table,
        operands: _Table,
        dependencies: _Table,
    ) -> Program:
        """A Program whose ranges are checked; whether it is right is the checker's word."""

    def columns(self) -> ProgramColumns:
        """The keyword arguments of `from_columns` that give this Program back."""

    @property
    def name(self) -> str: ...
    @property
    def collective(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def root(self) -> int: ...
    @property
    def hash(self) -> int:
        """64-bit FNV-1a over every field: what ranks agree on."""

    @property
    def fifo_depth(self) -> int:
        """Messages that one connection must be able to hold."""

    @property
    def channels(self) -> int: ...
    @property
    def message_slots(self) -> int:
        """The largest number of slots in a message."""

    @property
    def one_sided(self) -> bool: ...
    @property
    def needs_size_matrix(self) -> bool:
        """It relays blocks that a rank neither starts nor ends with: ranks must know every block's size."""

    @property
    def in_place(self) -> bool: ...
    @property
    def out_of_place(self) -> bool: ...
    @property
    def rounds_per_hop(self) -> bool:
        """16- and 8-bit floats are rounded at every reduction, not once."""

class Slot:
    """A place for one chunk at a rank; made by a ProgramBuilder."""

    @property
    def space(self) -> int:
        """0 input, 1 output, 2 scratch."""

    @property
    def index(self) -> int: ...
    def __hash__(self) -> int: ...

class ProgramBuilder:
    """Writes a Program from one logical order of moves; allocates lanes and dependencies by itself.

    `chunks` are (block, weight) rows. Whatever is built is free of deadlock at the fifo_depth that it states: 1, unless
    `append` leaves more messages in flight.
    """

    def __init__(
        self, name: str, collective: str, ranks: int, root: int, chunks: Sequence[tuple[int, int]] | _Table
    ) -> None: ...
    def input(self, rank: int, chunk: int) -> Slot: ...
    def output(self, rank: int, chunk: int) -> Slot: ...
    def scratch(self, rank: int, chunk: int) -> Slot:
        """A new slot, as large as `chunk`."""

    def place(self, rank: int, chunk: int) -> Slot:
        """The output slot of `chunk` where the rank has one, else a new scratch slot."""

    def copy(self, rank: int, dst: Slot, src: Slot) -> None: ...
    def reduce(self, rank: int, dst: Slot, sources: Sequence[Slot]) -> None:
        """dst = sources[0] + sources[1] + .., in this order, rounded once."""

    def transfer(self, src_rank: int, src: Slot, dst_rank: int, dst: Slot, channel: int = 0) -> None:
        """A send at one rank and the recv at the other."""

    def transfer_reduce(
        self, src_rank: int, src: Slot, dst_rank: int, dst: Slot, operand: Slot, channel: int = 0
    ) -> None:
        """A send at one rank; at the other dst = message + operand."""

    def append(
        self,
        rank: int,
        lane: int,
        opcode: int,
        dst: tuple[int, int],
        src: tuple[int, int],
        count: int,
        recv_peer: int,
        send_peer: int,
        channel: int,
        operands: Sequence[tuple[int, int]] = (),
    ) -> None:
        """One instruction into a lane of the caller's choice; slots are (space, index). Messages are sent first."""

    def skew(self, slices: int) -> None:
        """The moves that follow are so many slices behind their lanes' turns; never less than before."""

    def finish(self) -> Program:
        """The Program so far; the builder may go on."""

class Algorithm:
    """A C++ builder of Programs."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def collectives(self) -> tuple[str, ...]: ...

def algorithms() -> list[Algorithm]:
    """The table of C++ builders."""

def algorithm_names(collective: str) -> list[str]:
    """Whom one may ask for by name in this collective, beside `auto` and what is loaded."""

def automatic_choice(collective: str, bytes: int, boxes: Sequence[Sequence[int]]) -> tuple[str, str]:
    """The algorithm that `auto` means among the ranks of these hosts where no table says otherwise, and why."""

def build(
    name: str, collective: str, ranks: int, root: int = 0, boxes: Sequence[Sequence[int]] | None = None
) -> Program:
    """The Program of a named algorithm. `boxes`, the ranks of each box, shapes `hierarchical` only."""

def boxes_for(ranks: int) -> list[list[int]]:
    """About sqrt(ranks) boxes of nearly equal size: what `hierarchical` uses without `boxes`."""

def double_binary_tree(ranks: int) -> tuple[list[int], list[int]]:
    """The parent of every rank in both trees; a root is its own parent."""

# ---- communicator ---------------------------------------------------------------------------------------------------
# Collectives over buffers given as addresses (collectives/verbs.py knows arrays). Wrong arguments are
# ValueErrors, everything between ranks is a CommunicationError. Timeouts are seconds; 0 means the group's own.

class CommunicationError(RuntimeError):
    """Something went wrong between ranks; the sentence names them and the operation."""

    kind: str
    """mismatch, timeout, dead, aborted or system."""
    ranks: tuple[int, ...]
    """The guilty ranks, as far as known."""

class Process:
    """The runtime in this operating system process: one Engine for all groups."""

    def __init__(self) -> None: ...
    @property
    def forked(self) -> bool:
        """True in a child of the process that made it: then nothing made with it may be used."""

    def close(self) -> None:
        """Ends all groups and waits for their callbacks."""

    def capsule(self) -> object:
        """For syntony._torch."""

def allocate(bytes: int) -> npt.NDArray[np.uint8]:
    """Zeros in page-aligned memory that other processes of the host could map."""

def contiguous(array: object) -> tuple[int, int, str, bool] | None: ...
def place_of(address: int, bytes: int) -> tuple[int, int] | None:
    """Descriptor and offset of memory from `allocate`; None for other memory."""

class Work:
    """An operation in flight."""

    @property
    def done(self) -> bool: ...
    @property
    def source(self) -> int:
        """The rank that a message came from, else -1."""

    @property
    def sequence(self) -> int: ...
    def on_done(self, callback: Callable[[], object]) -> None:
        """Calls it once, when done, in error too: at once if it is, else on a thread that others do not wait for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Drives the operation until it is done and raises its error. False if `timeout` seconds passed first."""

def dump_records(folder: str) -> list[str]:
    """Writes `syntony_rank_N` for each rank in this process; returns the paths."""

def counters() -> str:
    """The counters of all groups of this process as Prometheus text."""

class Communicator:
    """One rank's end of a group.

    `bootstrap` is any object with `rank`, `size` and `all_gather(name: str, blob: bytes) -> list[bytes]`.
    """

    def __init__(
        self,
        process: Process,
        bootstrap: object,
        timeout: float,
        name: str,
        job_ranks: Sequence[int] = (),
        tuner: object = None,
    ) -> None:
        """`tuner` (csrc/bindings/core/tuner.hpp) is kept for ever, as groups may outlive the interpreter."""

    @staticmethod
    def of_capsule(process: Process, capsule: object) -> Communicator:
        """The group of a torch backend (syntony._torch)."""

    def capsule(self) -> object:
        """For syntony._torch."""

    def split(self, color: int | None, key: int, timeout: float, name: str) -> Communicator | None:
        """A group of those with the same color, or None without one. Collective; timeout 0: the group's."""

    def shrink(self, excluded: Sequence[int], timeout: float, name: str) -> Communicator:
        """A group of those that live and are not excluded. Collective over them; this group is shut down."""

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
    def sequence(self) -> int: ...
    def record(self) -> bytes:
        """A dump (csrc/core/recorder/recorder_dump.hpp) of this group alone."""

    def counters(self) -> str:
        """The counters of this group as Prometheus text."""

    def run(
        self,
        *,
        collective: str,
        dtype: str,
        op: str = "sum",
        root: int = 0,
        blocks: Sequence[tuple[int, int, int]],
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int = 0,
        timeout: float = 0.0,
        async_op: bool = False,
        average: bool = False,
        factor: float = 1.0,
        even: bool = True,
        keep_alive: object = None,
    ) -> Work | None:
        """`blocks`, as program.hpp's Collective indexes them: (input address, output address, elements); address 0
        where the collective gives this rank none. None unless async."""

    def run_even(
        self,
        collective: str,
        input: object,
        output: object,
        op: str,
        algorithm: str,
        async_op: bool,
        timeout: float | None,
    ) -> bool:
        """The call that is made nearly always, with arrays in even parts; waits for it. False, and nothing done, for
        any other call."""

    def all_reduce_together(
        self,
        *,
        dtype: str,
        op: str = "sum",
        buffers: Sequence[tuple[int, int, int]],
        algorithm: str = "auto",
        priority: str | None = None,
        timeout: float = 0.0,
        async_op: bool = False,
        average: bool = False,
        keep_alive: object = None,
    ) -> Work | None:
        """One all_reduce over buffers (input address, output address, elements), packed and unpacked."""

    def barrier(self, priority: str | None = None, timeout: float = 0.0, async_op: bool = False) -> Work | None: ...
    def send(
        self,
        address: int,
        bytes: int,
        destination: int,
        tag: int = 0,
        timeout: float = 0.0,
        async_op: bool = False,
        keep_alive: object = None,
    ) -> Work: ...
    def receive(
        self,
        address: int,
        bytes: int,
        source: int,
        tag: int = 0,
        timeout: float = 0.0,
        async_op: bool = False,
        keep_alive: object = None,
    ) -> Work:
        """`source` -1 receives from any rank."""

    def add_program(self, name: str, program: Program) -> None:
        """Makes a Program available as an algorithm. The caller has had it proven."""

    def set_turns(self, name: str, collective: str, turns: Sequence[tuple[int, str, str]]) -> None:
        """Makes `name` an algorithm that depends on the size: of (last bytes, algorithm, why), ascending, the first
        that reaches; the last one serves what is larger. Every rank must say the same.
        """

    def choice(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = "auto") -> tuple[str, str]:
        """The algorithm that a call would run, and why."""

    @property
    def notes(self) -> list[str]:
        """What the ranks' tuners told each other when the group was made, by rank."""

    def program_hash(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = "auto") -> int:
        """Program.hash of program_for's, at once."""

    def program_for(self, collective: str, root: int = 0, bytes: int = 0, algorithm: str = "auto") -> Program:
        """The Program that a call would run."""

    def abort(self, why: str) -> None: ...
    def shutdown(self) -> None: ...
    def set_timeout(self, timeout: float) -> None: ...
    @property
    def timeout(self) -> float:
        """Of calls that do not say theirs."""

    def set_priority(self, priority: str | None) -> None:
        """Of calls that do not say theirs."""
    def set_canonical(self, canonical: bool) -> None:
        """Whether sums that ask for no algorithm use `pairwise`."""

# ---- simulation -----------------------------------------------------------------------------------------------------
# Flows on fairly shared links (csrc/solve/simulate/flows.hpp). The columns are those of
# syntony.synth.simulation.flows.Flows and Paths.

_Column = np.ndarray[Any, np.dtype[Any]]

class FlowColumns(TypedDict):
    """The columns of syntony.synth.simulation.flows.FlowTimes. For type checkers only: at run time it is a dict."""

    start: _Column
    left: _Column
    arrival: _Column
    path: _Column
    times: _Column
    link: _Column
    rate: _Column

def simulate_flows(
    *,
    bytes: _Column,
    latency: _Column,
    release: _Column,
    after_offset: _Column,
    after: _Column,
    after_left_offset: _Column,
    after_left: _Column,
    set: _Column,
    policy: _Column,
    set_offset: _Column,
    path_offset: _Column,
    link: _Column,
    weight: _Column,
    capacity: _Column,
    timeline: bool,
) -> FlowColumns:
    """Simulates flows. Raises ValueError naming column and row where the columns do not fit together."""

class StepColumns(TypedDict):
    """Per step and op. For type checkers only: at run time it is a dict."""

    ready: _Column
    launch: _Column
    start: _Column
    end: _Column
    wait: _Column
    blame: _Column

def simulate_steps(
    *,
    order_offset: _Column,
    order: _Column,
    free: _Column,
    serial: _Column,
    window: _Column,
    rank: _Column,
    device: _Column,
    overhead: _Column,
    computes: _Column,
    priority: _Column,
    seconds: _Column,
    latency: _Column,
    bytes: _Column,
    dep_offset: _Column,
    dep: _Column,
    lag_offset: _Column,
    lag: _Column,
    partner: _Column,
    out: _Column,
    into: _Column,
    contention: float,
    steps: int,
) -> StepColumns:
    """Simulates steps. Raises ValueError naming the column where the columns do not fit together."""

class LaneColumns(TypedDict):
    """The columns of syntony.synth.simulation.lanes.LaneTimes. For type checkers only: at run time it is a dict."""

    seconds: float
    stuck_row: int
    stuck_slice: int
    row: _Column
    slice: _Column
    path: _Column
    start: _Column
    left: _Column
    arrival: _Column
    times: _Column
    link: _Column
    rate: _Column

def simulate_lanes(
    *,
    lane_offset: _Column,
    lane_slices: _Column,
    skew: _Column,
    out: _Column,
    into: _Column,
    signals: _Column,
    need_offset: _Column,
    need: _Column,
    chunk_offset: _Column,
    chunk: _Column,
    chunk_bytes: _Column,
    slice_bytes: _Column,
    kind: _Column,
    feeder: _Column,
    drainer: _Column,
    flow_offset: _Column,
    flow: _Column,
    route: _Column,
    path_offset: _Column,
    link: _Column,
    weight: _Column,
    latency: _Column,
    capacity: _Column,
    fifo_depth: int,
    buffered: bool,
    every_slice: bool,
) -> LaneColumns:
    """Simulates the lanes of a Program. Raises ValueError where the columns do not fit together."""

# ---- emulation ------------------------------------------------------------------------------------------------------

def run_delay_line(wires: list[tuple[int, int, float]], stop: int) -> tuple[int, int, float, float]:
    """Passes packets on between pairs of TUN descriptors (one, other, seconds) until `stop` is readable.

    Returns packets, packets lost, mean and worst lateness in seconds. OSError or RuntimeError when the kernel refuses.
    """

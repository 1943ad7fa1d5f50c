"""What only the synthesizer and the simulators call (csrc/solve), as csrc/bindings/solve binds it."""

from typing import Any, TypedDict

import numpy as np

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

def simulate_flows(flows: object, paths: object, timeline: bool) -> FlowColumns:
    """Simulates a `Flows` and its `Paths`. Raises ValueError naming column and row where they do not fit together."""

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
    """The columns of syntony.synth.simulation.sim_program.LaneTimes. For type checkers only: at run time a dict."""

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

def simulate_lanes(program: object, every_slice: bool) -> LaneColumns:
    """Simulates a `SimProgram`. Raises ValueError where its columns do not fit together."""

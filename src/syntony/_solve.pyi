"""
Graph algorithms of the engines and bounds, and the simulators of schedules, programs and training steps.
"""

from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


class FlowNetwork:
    """
    A directed multigraph with int64 capacities and a flow in it that further calls continue.
    """

    def __init__(self, nodes: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacities: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def nodes(self) -> int: ...

    @property
    def arcs(self) -> int: ...

    def augment(self, source: int, sink: int, limit: int | None = None) -> int:
        """
        Sends as much more as fits from source to sink (at most `limit`); returns how much that was.
        """

    def set_capacity(self, arc: int, capacity: int) -> None:
        """A new capacity for one arc; the flow stays and must fit."""

    def flow(self, arc: int) -> int:
        """What flows through the arc."""

    def reset(self) -> None:
        """The flow back to zero."""

    def flows(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
        """What flows through each arc."""

    def reachable_from(self, source: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,))]:
        """
        Which nodes can still be sent to: after a maximum flow the smallest source side of a minimum cut.
        """

    def reaching(self, sink: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,))]:
        """
        Which nodes can still send to the sink: after a maximum flow the smallest sink side of a minimum cut.
        """

class ShortestPaths:
    """A directed graph with lengths that answers how far its nodes are."""

    def __init__(self, nodes: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def distances(self, source: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]:
        """
        Per node the length of a shortest path from `source`; infinite where there is none.
        """

class Forest:
    """Trees as columns; see csrc/solve/trees/forest.hpp."""

    @property
    def root(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def multiplicity(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def offset(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def tail(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def head(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def route(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def route_offset(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def route_link(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

def edge_depths(edges: int, tails: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """How far from its root each edge of trees of `edges` edges each begins."""

def pack_forest(nodes: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacities: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], trees: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Forest:
    """
    Spanning trees over receivers 0..len(trees)-1 of a network whose other nodes relay, trees[r] of them from r. ValueError where they do not fit, or a relay takes in more or less than it sends out.
    """

class FractionalPacking:
    """
    Spanning trees of any weights by multiplicative weights; see csrc/solve/trees/fractional_packing.hpp.
    """

    def __init__(self, nodes: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacities: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], owed: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def run(self, phases: int, seconds: float, most_trees: int) -> bool:
        """
        Runs so many phases more, or until the seconds are over or so many trees are known; whether all were run.
        """

    def cheapest(self, lengths: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> float:
        """
        What the shortest trees of all roots cost under these lengths, each times what its root owes.
        """

    def forest(self) -> Forest:
        """All trees found, each once."""

    @property
    def weights(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def lengths(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

def find_channels(gpus: int, nets: int, closed: bool, offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], link: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], cost: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], room: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], most: int, steps: int, turn: int = 0) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """
    Channels that the links carry together, by depth-first search of so many steps: for each its network device (-1 without) and its GPUs. See csrc/solve/graph/channel_search.hpp.
    """

class ExchangePlan:
    """Pieces as columns; see csrc/solve/graph/exchange_plan.hpp."""

    @property
    def length(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def source(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def out(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def into(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def target(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def offset(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

def plan_exchange(boxes: int, per_box: int, matrix: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> ExchangePlan:
    """
    Which bytes of an all_to_all_v go over which NIC in which stage. ValueError for a negative entry.
    """

class BalancedPaths:
    """Paths as columns; see csrc/solve/graph/balanced_paths.hpp."""

    @property
    def demand(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def offset(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def link(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def prices(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def time(self) -> float: ...

    @property
    def proven(self) -> float: ...

def balanced_paths(nodes: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacities: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], source: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], hop_demand: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], hop_step: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], hop_offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], hop_link: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], time: float, tolerance: float, seconds: float, rounds: int = 4294967295) -> BalancedPaths:
    """
    One path per demand, balanced over the links by exponential prices; only those that changed are returned. ValueError where no path leads.
    """

class NegotiatedTrees:
    """Hops of trees; see csrc/solve/trees/negotiated.hpp."""

    @property
    def hop(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def busy(self) -> float: ...

    @property
    def depth(self) -> float: ...

def negotiated_trees(receivers: int, src: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], dst: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], delay: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], link: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], seconds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], root: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], backwards: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], time: float, patience: float, rounds: int) -> NegotiatedTrees:
    """
    Spanning trees that share links so that none is busy for longer than `time`, nearly, and are shallow. ValueError where a receiver cannot be reached.
    """

def regraft(nodes: int, receivers: int, tails: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], heads: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], room: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], most: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], root: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], backwards: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], tail: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], head: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], route_offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], route_link: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], rounds: int) -> Forest:
    """
    Trees mended after links were lost (-1 in route_link) or became too slow for what they carry, as a Forest; grown, where they come without edges. Those that go backwards walk against the links. ValueError where a receiver cannot be reached.
    """

def simulate_flows(flows: object, timeline: bool) -> dict[str, Any]:
    """
    Simulates flows on fairly shared links: a synth.simulation.flows.Flows in, the columns of FlowTimes out.
    """

def simulate_lanes(program: object, every_slice: bool) -> dict[str, Any]:
    """
    Simulates a Program's lanes on fairly shared links: a SimProgram in, the columns of LaneTimes out.
    """

def list_schedule(tasks: object) -> dict[str, Any]:
    """
    When each task begins if the most urgent goes first: the columns of Tasks in, those of ListSchedule out (csrc/solve/simulate/list_schedule.hpp).
    """

def simulate_steps(step: object, steps: int) -> dict[str, Any]:
    """
    Simulates steps of training: an overlap.predict.sim_step.SimStep in, the columns of StepTimes out.
    """

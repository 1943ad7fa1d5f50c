"""The registry: what each published system does, as passes over the step, an order and a gate.

An entry takes the Graph as it was generated (or recorded by our trainer), the Cost, and its knobs, and returns a Plan's
making. `search` turns the knobs. Where the same mechanism stands for less than the paper, its row says what is missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import gcd
from types import MappingProxyType
from typing import Any, NamedTuple

from syntony.base.command import UserError
from syntony.base.quantity import size
from syntony.base.wording import did_you_mean
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.backward import delay_weight_grad, last_backwards, split_backward
from syntony.overlap.policies.passes.cut import chunk, slice
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.experts import move_experts, with_shadows
from syntony.overlap.policies.passes.fuse import fuse, fuse_best
from syntony.overlap.policies.passes.loop import can_loop, loop
from syntony.overlap.policies.passes.recompute import hide_recompute
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan


class Knob(NamedTuple):
    """What can be turned: its default, and the values that a search tries."""

    default: Any
    grid: tuple[Any, ...]


@dataclass(frozen=True)
class Decided:
    """graph; how lanes choose while their order is found; the gate; which computing comes whenever it can."""

    graph: Graph
    rule: orders.Rule = orders.fifo
    windows: Mapping[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    movable: Collection[Kind] = ()

    def plan(self, name: str, knobs: Mapping[str, object], cost: Cost) -> Plan:
        movable = set(self.movable)
        updates = {op.key for op in self.graph if op.kind is Kind.OPTIMIZE and op.lagged}
        if any(op.kind is Kind.ALL_GATHER and updates.intersection(op.deps) for op in self.graph):
            movable |= {Kind.OPTIMIZE, Kind.NORM}  # what is gathered is updated early, not just before its use
        found = orders.listed(self.graph, cost, self.rule(self.graph, cost), self.priorities, movable, self.windows)
        clip = self.graph.layout.clip if self.graph.layout else Clip.OFF
        return Plan(name, self.graph, found, self.windows, knobs, clip, self.priorities)


Decide = Callable[..., Decided]


class Standing(StrEnum):
    """How much of a published system a policy is."""

    WHOLE = "W"
    SIMULATED = "S"
    PARTIAL = "P"


@dataclass(frozen=True)
class Policy:
    """A registry entry with its knobs set.

    paper        authors, system, venue
    missing      what of the paper's idea it does not do; "": nothing
    simulated    why it can only be simulated; "": it runs
    """

    name: str
    paper: str
    about: str
    decide: Decide
    knobs: Mapping[str, Knob]
    values: Mapping[str, Any]
    missing: str = ""
    simulated: str = ""

    @property
    def standing(self) -> Standing:
        return Standing.PARTIAL if self.missing else Standing.SIMULATED if self.simulated else Standing.WHOLE

    def plan(self, graph: Graph, cost: Cost) -> Plan:
        """The plan of this step. Raises UserError where the policy has nothing to do with it (no pipeline, ..)."""
        return replace(
            self.decide(graph, cost, **self.values).plan(self.name, self.values, cost), simulated=self.simulated
        )

    def with_knobs(self, **values: Any) -> Policy:
        """The same with some knobs turned; text is read as what the default is (sizes: 256K, 1M). Raises UserError."""
        found = dict(self.values)
        for name, value in values.items():
            if name not in self.knobs:
                guess, mine = did_you_mean(name, self.knobs), ", ".join(self.knobs) or "none"
                raise UserError(f"policy {self.name} has no knob {name!r}{guess}; it has {mine}")
            found[name] = _read(self.name, name, value, self.knobs[name].default)
        return replace(self, values=found)


POLICIES: dict[str, Policy] = {}
LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "fold3d": "what is known here of Li et al. (TPDS 2023) is its abstract, and that is breadth_first's plan",
        "trirace": "no description of it was found; its asynchronous updates would change the result",
    }
)
"""Systems that the surveys name and that have no row, with the reason."""


def policy(name: str, **knobs: Any) -> Policy:
    """A policy by name. Raises UserError for a name, a knob or a value that there is not."""
    if name in LEFT_OUT:
        raise UserError(f"policy {name} is left out: {LEFT_OUT[name]}")
    if name not in POLICIES:
        raise UserError(f"unknown policy {name!r}{did_you_mean(name, POLICIES)}; known are {', '.join(POLICIES)}")
    return POLICIES[name].with_knobs(**knobs)


def _read(policy: str, name: str, value: Any, default: Any) -> Any:
    if isinstance(value, str) and not isinstance(default, str):
        try:
            value = size(value) if isinstance(default, int) else float(value)
        except ValueError:
            raise UserError(f"policy {policy}: {name} is {value!r}; it must be a number such as {default}") from None
    if isinstance(value, (int, float)) and value < 0:
        raise UserError(f"policy {policy}: {name} is {value}; it must not be negative")
    return value


def _policy(
    paper: str, missing: str = "", simulated: str = "", **knobs: tuple[Any, tuple[Any, ...]]
) -> Callable[[Decide], Decide]:
    def register(decide: Decide) -> Decide:
        own = {name: Knob(*knob) for name, knob in knobs.items()}
        about = inspect.getdoc(decide) or ""
        name = decide.__name__
        values = {key: knob.default for key, knob in own.items()}
        POLICIES[name] = Policy(name, paper, about, decide, own, values, missing, simulated)
        return decide

    return register


def _in_turn(graph: Graph, count: int, lanes: Collection[str]) -> Graph:
    return relayout.parts_in_turn(chunk(graph, count, lanes))


def _best(cost: Cost, choices: Iterable[Decided]) -> Decided:
    """The one whose plan is simulated fastest; the first of those that are within a millionth."""
    found = [(simulate(choice.plan("", {}, cost), cost).seconds, choice) for choice in choices]
    least = min(seconds for seconds, _ in found)
    return next(choice for seconds, choice in found if seconds <= least * (1 + 1e-6))


def _lanes(graph: Graph, *lanes: str) -> tuple[str, ...]:
    """Those of the lanes on which something moves for every microbatch. UserError where there are none."""
    found = {op.lane for op in graph if op.lane in lanes and op.microbatch >= 0 and not op.pieces}
    if not found:
        raise UserError(f"nothing moves on {' or '.join(lanes)} inside the layers of this step")
    return tuple(sorted(found))


K, M = 1 << 10, 1 << 20
SIZES = (256 * K, 512 * K, M, 2 * M, 4 * M, 8 * M, 16 * M)
DEGREES = (1, 2, 4, 8)
GRADIENTS = ("dp", "edp", "replicas")
LAST = dict.fromkeys(GRADIENTS, 1)  # sums of gradients give way to everything else on their link
STAGGERS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # of a microbatch's way, between it and the next
_SMALL = 3000  # ops of a step for which choices are made layer by layer
LATE = (4, 8)  # first layers whose gradients of weights may come last

# ---- plain ----------------------------------------------------------------------------------------------------------


@_policy("none: the plain order")
def fifo(graph: Graph, cost: Cost) -> Decided:
    """Everything moves as soon as it is ready, the first ready first; the next step waits for all updates."""
    return Decided(graph)


@_policy("none: everything after the last backward")
def serial(graph: Graph, cost: Cost) -> Decided:
    """Sums of gradients begin when nothing is left to compute: what overlap is measured against."""
    return Decided(relayout.after_backward(graph))


@_policy("none: the order that the simulator finds best in most steps", slice=(M, SIZES))
def need(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Slices, the soonest needed first, over the cut between steps; gradients of the first layers' weights late, where
    that pays."""
    found = [one for late in _first_layers_late(graph) for one in _over_the_cut(late)]
    return _best(cost, [Decided(_sliced(one, slice), orders.need, priorities=LAST) for one in found])


def _over_the_cut(graph: Graph) -> list[Graph]:
    """Updates deferred; where weights are gathered afterwards, of more or fewer layers."""
    gathers = any(op.kind is Kind.ALL_GATHER and op.microbatch < 0 for op in graph)
    return [defer(graph, share) for share in ((1.0, 0.83, 0.75, 0.67, 0.5) if gathers else (1.0,))]


def _first_layers_late(graph: Graph) -> list[Graph]:
    """As it is, and with late gradients of so many first layers' weights, unless it has an order of its own, or these
    gradients are not made apart."""
    own = graph.layout is None or graph.layout.pp > 1 or any(op.kind is Kind.BACKWARD_WEIGHT for op in graph)
    apart = all(layer.backward[1] > 0 for layer in graph.layers)
    if own or not apart or not any(op.lane in GRADIENTS for op in graph):
        return [graph]
    return [graph, *(delay_weight_grad(split_backward(graph, last_backwards(graph, n)), n) for n in LATE)]


def _sliced(graph: Graph, size: int) -> Graph:
    return slice(graph, size, GRADIENTS)


# ---- as soon as it is there -----------------------------------------------------------------------------------------


@_policy(
    "Zhang et al., Poseidon, USENIX ATC 2017",
    missing="sending factors instead of gradients where they are smaller (HybComm)",
)
def poseidon(graph: Graph, cost: Cost) -> Decided:
    """Wait-free backpropagation: a layer's sum starts when its gradient exists."""
    return Decided(graph)


@_policy(
    "Sun et al., GradientFlow, 2019",
    missing="its sparsification, which loses gradients",
    pool=(16 * M, (4 * M, 16 * M, 64 * M)),
)
def gradientflow(graph: Graph, cost: Cost, pool: int) -> Decided:
    """Lazy all_reduce: gradients gather in a pool, and are summed whenever it is full."""
    return Decided(fuse(graph, pool))


@_policy("Li et al., PyTorch Distributed, VLDB 2020", first=(M, (M,)), cap=(25 * M, (M, 2 * M, 4 * M, 25 * M)))
def ddp(graph: Graph, cost: Cost, first: int, cap: int) -> Decided:
    """Buckets in the order of the backward, a small one first."""
    return Decided(fuse(graph, first, cap))


# ---- priority -------------------------------------------------------------------------------------------------------


@_policy("Jayarajan et al., P3, MLSys 2019", slice=(200 * K, (50 * K, 200 * K, 800 * K)))
def p3(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Slices of 50,000 numbers, layers that come first go first. Their servers' push and pull are one sum here."""
    return Decided(_sliced(defer(graph), slice), orders.need)


@_policy("Hashemi et al., TicTac, MLSys 2019", times=(1, (0, 1)))
def tictac(graph: Graph, cost: Cost, times: int) -> Decided:
    """Transfers by what waits for them: from the graph alone (times=0, TIC) or with seconds (times=1, TAC)."""
    return Decided(defer(graph), orders.critical if times else orders.need)


@_policy(
    "Peng et al., ByteScheduler, SOSP 2019",
    missing="its Bayesian tuning while training",
    slice=(4 * M, SIZES),
    credit=(8 * M, (0, *SIZES)),
)
def bytescheduler(graph: Graph, cost: Cost, slice: int, credit: int) -> Decided:
    """Partitions by priority, at most `credit` bytes in flight, which the order knows of."""
    return Decided(_sliced(defer(graph), slice), orders.need, dict.fromkeys(GRADIENTS, credit) if credit else {})


@_policy("Bao et al., PACE, INFOCOM 2020", slice=(M, SIZES))
def pace(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Fused, and preempted by what is needed sooner. What is fused is what makes the preempted step shortest."""

    def preempted(fused: Graph) -> Decided:
        return Decided(_sliced(defer(fused), slice), orders.need)

    def seconds(fused: Graph) -> float:
        return simulate(preempted(fused).plan("", {}, cost), cost).seconds

    return preempted(fuse_best(graph, cost, seconds))


@_policy(
    "Li et al., Lina, USENIX ATC 2023",
    missing="its placing of experts for inference",
    slice=(M, SIZES),
    degree=(2, DEGREES),
)
def lina(graph: Graph, cost: Cost, slice: int, degree: int) -> Decided:
    """all_to_all before all_reduce; both in pieces, so that the first waits for one of the second at most."""
    lanes = _lanes(graph, "ep")
    return Decided(_sliced(chunk(graph, degree, lanes), slice), orders.by_class(Kind.ALL_TO_ALL), priorities=LAST)


# ---- stages ---------------------------------------------------------------------------------------------------------


@_policy("Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023", loops=(2, (1, 2, 4)))
def breadth_first(graph: Graph, cost: Cost, loops: int) -> Decided:
    """Looped chunks of layers, each with all microbatches before the next."""
    return Decided(relayout.loop_stages(graph, loops))


# ---- communication taken apart --------------------------------------------------------------------------------------


@_policy(
    "Wang et al., Overlap Communication with Dependent Computation, ASPLOS 2023",
    ways=(0, (0, 1, 2)),
    pieces=(0, (0, 2, 4, 8)),
)
def collective_matmul(graph: Graph, cost: Cost, ways: int, pieces: int) -> Decided:
    """Gathers and scatters of sequences as shifts, shard by shard beside the products of matrices that take or make
    them, in one direction or in two (ways=0: the faster). Where sums are whole (sequence=false) or keys go round, and
    with `pieces`, the batch is cut instead: in so many, or (0) as many as ranks."""
    lanes = _lanes(graph, "tp", "cp")
    if pieces or not can_loop(graph):
        return Decided(_in_turn(graph, pieces or graph.groups[lanes[0]], lanes), orders.critical)
    return _best(cost, [Decided(loop(graph, way), orders.critical) for way in ([ways] if ways else (1, 2))])


@_policy(
    "Mahajan et al., SYNDICATE, NSDI 2023",
    missing="motifs (split, level, order) as moves of its search, both levels optimized together",
    slice=(M, SIZES),
    local=(2, (1, 2, 4, 8)),
)
def syndicate(graph: Graph, cost: Cost, slice: int, local: int) -> Decided:
    """Pieces of collectives packed on the networks of two levels at once."""
    return Decided(_sliced(defer(relayout.by_level(graph, local)), slice), orders.critical)


@_policy(
    "Chen et al., Centauri, ASPLOS 2024",
    missing="a choice for each operation in its three tiers; tensor and expert parallelism by level",
    slice=(M, SIZES),
    local=(2, (1, 2, 4, 8)),
    degree=(2, DEGREES),
)
def centauri(graph: Graph, cost: Cost, slice: int, local: int, degree: int) -> Decided:
    """Partitions by primitive, by level and by workload, each taken where it is simulated faster."""
    levels = [graph]
    if "dp" in graph.groups:
        levels += [relayout.split_reduce(graph)]
        levels += [relayout.by_level(graph, local)] if graph.groups["dp"] % local == 0 else []
    inner = [lane for lane in ("tp", "ep", "cp") if lane in graph.groups]
    cut = [_in_turn(level, count, inner) for level in levels for count in sorted({1, degree})]
    found = [_sliced(one, slice) for level in cut for one in _over_the_cut(level)]
    return _best(cost, [Decided(one, orders.need, priorities=LAST) for one in found])


@_policy("Zhang et al., DeAR, ICDCS 2023", buffer=(4 * M, (0, *SIZES)))
def dear(graph: Graph, cost: Cost, buffer: int) -> Decided:
    """reduce_scatter beside the backward, all_gather beside the next forward, both fused. All sums come before the
    first gather."""
    split = relayout.split_reduce(graph)
    return Decided(defer(fuse(split, buffer) if buffer else split), orders.by_class(Kind.REDUCE_SCATTER))


# ---- computation taken apart ----------------------------------------------------------------------------------------


@_policy(
    "Jangda et al., CoCoNet, ASPLOS 2022",
    missing="its fused kernels, and the search over its transformations",
    slice=(M, SIZES),
    pieces=(2, DEGREES),
)
def coconet(graph: Graph, cost: Cost, slice: int, pieces: int) -> Decided:
    """all_reduce split around an optimizer of slices; products of matrices overlapped with their collectives."""
    inner = [lane for lane in ("tp", "cp") if lane in graph.groups]
    split = relayout.split_reduce(graph) if "dp" in graph.groups else graph
    return Decided(_sliced(_in_turn(split, pieces, inner), slice))


@_policy(
    "Pati et al., T3, ASPLOS 2024",
    simulated="t3 is hardware, which starts transfers when stores are counted",
    pieces=(8, (4, 8, 16)),
)
def t3(graph: Graph, cost: Cost, pieces: int) -> Decided:
    """Hardware starts what moves as its producer stores it, piece by piece: only the first has a launch and a latency.
    Sums in memory take no time of the processor."""
    cut = _in_turn(graph, pieces, _lanes(graph, "tp", "cp"))
    return Decided(replace(cut, triggered=True), orders.critical)


@_policy(
    "Oh et al., Out-of-order Backprop, EuroSys 2022",
    missing="its allocation of a pipeline's layers, modulo its devices",
    first=(4, (0, 1, 2, 4, 8, 16)),
)
def ooo_backprop(graph: Graph, cost: Cost, first: int) -> Decided:
    """Gradients of weights off the chain of the backward; those of the first layers late, and the very first soonest.
    A pipeline keeps its order of microbatches, and makes gradients of weights where it would wait."""
    if graph.layout and graph.layout.pp > 1:
        return Decided(split_backward(graph), movable=(Kind.BACKWARD_WEIGHT,))
    chained = any(op.kind.moves and op.microbatch >= 0 and not op.pieces for op in graph)
    split = split_backward(graph, None if chained else last_backwards(graph, first))
    return Decided(defer(delay_weight_grad(split, first)), orders.need)


@_policy("Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024", memory=("1p", ("1p", "2p", "v")))
def zero_bubble(graph: Graph, cost: Cost, memory: str) -> Decided:
    """Backward in two, the order searched with measured times: at the memory of 1f1b (1p), twice that (2p), or in a V
    (v). Updates do not wait for other devices, whose norm is verified later: clip=optimistic."""
    if memory not in ("1p", "2p", "v"):
        raise UserError(f"policy zero_bubble: memory is {memory!r}; it must be 1p, 2p or v")
    return Decided(relayout.reorder_pipeline(graph, f"zb{memory}", cost))


@_policy(
    "Li et al., Automated Tensor Model Parallelism with Overlapped Communication (Oases), 2023",
    missing="its planner of tensor-parallel degrees",
    batches=(0, (0, 2, 4)),
)
def oases(graph: Graph, cost: Cost, batches: int) -> Decided:
    """Sub-batches side by side: one computes while the other's sums move; what is computed again is not moved again. As
    many (0) as are simulated fastest."""
    _lanes(graph, "tp", "cp", "ep")
    counts = [batches] if batches else [n for n in (2, 4) if relayout.layout_of(graph).microbatches % n == 0] or [2]
    return _best(cost, [Decided(relayout.side_by_side(graph, count), orders.critical) for count in counts])


@_policy(
    "Chen et al., Lynx, 2024",
    missing="recomputation per segment under a limit of memory, by its exact program",
    ahead=(4, (1, 2, 4, 8, 16)),
)
def lynx(graph: Graph, cost: Cost, ahead: int) -> Decided:
    """Activations are computed again while the device waits for communication, up to `ahead` ops early."""
    return Decided(hide_recompute(graph, ahead), movable=(Kind.RECOMPUTE,))


# ---- experts --------------------------------------------------------------------------------------------------------


@_policy("Lepikhin et al., GShard, ICLR 2021")
def gshard(graph: Graph, cost: Cost) -> Decided:
    """all_to_all, experts, all_to_all, one after the other. Its capacity, which drops tokens, is the trainer's [model]
    capacity, and its auxiliary loss [model] balance."""
    _lanes(graph, "ep")
    return Decided(graph)


@_policy(
    "Hwang et al., Tutel, MLSys 2023",
    missing="parallelism that is switched between iterations; its hierarchical all_to_all",
    degree=(0, (0, *DEGREES)),
)
def tutel(graph: Graph, cost: Cost, degree: int) -> Decided:
    """all_to_all and experts in `degree` chunks; 0: the best of 1, 2, 4, 8. Which all_to_all is the tuner's choice."""
    lanes = _lanes(graph, "ep")
    return _best(cost, [Decided(chunk(graph, one, lanes)) for one in ([degree] if degree else DEGREES)])


@_policy(
    "He et al., FasterMoE, PPoPP 2022",
    missing="shadows chosen by each iteration's counts; its groupwise exchange",
    hot=(0, (0,)),
    degree=(2, DEGREES),
)
def fastermoe(graph: Graph, cost: Cost, hot: int, degree: int) -> Decided:
    """Shadows of `hot` experts on all ranks (0: as many as pay, or none); the others' tokens in groups. A plan knows
    no demand: the hot ones are a block's first, and pay as if asked for as often as the others."""
    lanes = _lanes(graph, "ep")
    shadowed = [move_experts(graph, hot)] if hot else with_shadows(graph)
    found = [Decided(chunk(one, degree, lanes), orders.need) for one in shadowed]
    return _best(cost, found if hot else [Decided(chunk(graph, degree, lanes)), *found])


@_policy("Shi et al., PipeMoE, INFOCOM 2023")
def pipemoe(graph: Graph, cost: Cost) -> Decided:
    """The degree out of linear costs: moving takes a + b / k per chunk, so k = sqrt(hidden / start) rounded."""
    lanes = _lanes(graph, "ep")
    seconds, latency = cost.seconds(graph)
    moved = [row for row, op in enumerate(graph) if op.kind is Kind.ALL_TO_ALL]
    inner = [row for row, op in enumerate(graph) if op.kind is Kind.FORWARD and graph.layers[op.layer].expert]
    start = sum(latency[row] for row in moved) / len(moved) + cost.overhead
    hidden = min(sum(seconds[row] for row in rows) / len(rows) for rows in (moved, inner))
    degree = 8 if start <= 0 else max(1, min(8, round((hidden / start) ** 0.5)))
    return Decided(chunk(graph, degree, lanes))


@_policy(
    "Shi et al., ScheMoE, EuroSys 2024",
    missing="its all_to_all beside itself on two levels; its compression, which loses digits",
    degree=(2, DEGREES),
)
def schemoe(graph: Graph, cost: Cost, degree: int) -> Decided:
    """Chunks in the best of the orders that come in question: as they are ready, the longest way first, by need."""
    cut = chunk(graph, degree, _lanes(graph, "ep"))
    return _best(cost, [Decided(cut, rule) for rule in (orders.fifo, orders.critical, orders.need)])


@_policy("Liu et al., Janus, SIGCOMM 2023", missing="experts pulled one by one, once per host")
def janus(graph: Graph, cost: Cost) -> Decided:
    """Experts move instead of tokens, in those layers where the step is faster for it: once a step each, whatever the
    number of microbatches."""
    _lanes(graph, "ep")
    movable = [i for i, layer in enumerate(graph.layers) if layer.moved]
    none, every = Decided(graph), Decided(move_experts(graph), orders.need)
    best = _best(cost, [none, every])
    chosen = set(movable if best is every else ())
    for i in movable if len(graph) <= _SMALL else ():
        other = chosen ^ {i}
        found = Decided(move_experts(graph, layers=other), orders.need) if other else none
        if _best(cost, [best, found]) is found:
            best, chosen = found, other
    return best


@_policy("Gao et al., FlowMoE, NeurIPS 2025", degree=(2, DEGREES), slice=(M, SIZES))
def flowmoe(graph: Graph, cost: Cost, degree: int, slice: int) -> Decided:
    """One pipeline of attention, gate, experts and all_to_all over `degree` sub-batches: microbatches, and where
    these are too few, groups of experts. Sums of gradients in chunks fill its gaps at lower priority."""
    lanes = _lanes(graph, "ep")
    layout = graph.layout
    together = gcd(degree, layout.microbatches) if layout is not None and layout.pp == 1 else 1
    flow = relayout.side_by_side(graph, together) if together > 1 else graph
    flow = chunk(flow, degree // together, lanes)
    return Decided(_sliced(flow, slice), orders.by_class(Kind.ALL_TO_ALL), priorities=LAST)


# ---- side by side ---------------------------------------------------------------------------------------------------


@_policy("Wang et al., Domino, 2024", batches=(2, (2, 4)))
def domino(graph: Graph, cost: Cost, batches: int) -> Decided:
    """The batch in independent parts that take turns, layer by layer: one's tensor-parallel sums move while another
    computes. Weights are not cut."""
    lanes = _lanes(graph, "tp")
    alone = graph.layout is None or graph.layout.microbatches == 1  # then its rows take turns
    return Decided(_in_turn(graph, batches, lanes) if alone else relayout.side_by_side(graph, batches))


@_policy("none: list scheduling (Graham, 1969) of computing, too", pieces=(0, (0, *DEGREES)))
def interleave(graph: Graph, cost: Cost, pieces: int) -> Decided:
    """Computing takes what is ready, of whatever microbatch, the longest way to the end first; microbatches begin one
    after another. How far apart, in how many pieces (0), or shard by shard, is simulated. What moves has its link
    alone, unless others are faster in flight with it."""
    relayout.unordered(graph, "interleave")
    lanes = _lanes(graph, "tp", "cp", "ep")
    cut = [chunk(graph, count, lanes) for count in ([pieces] if pieces else DEGREES)]
    unlike = [*{len(one): one for one in cut}.values(), *([loop(graph)] if can_loop(graph) and not pieces else [])]
    found = [relayout.first_come(one, cost, orders.staggered(share)) for one in unlike for share in STAGGERS]
    alone = _best(cost, [Decided(one, orders.critical, dict.fromkeys(lanes, 1), LAST) for one in found])
    return _best(cost, [alone, replace(alone, windows={})])


@_policy("DeepSeek-AI, DualPipe (DeepSeek-V3 Technical Report), 2024", batches=(1, (1, 2)))
def dualpipe(graph: Graph, cost: Cost, batches: int) -> Decided:
    """Forward of one microbatch beside the backward of another. In the V form, with one copy of the weights; on one
    device, the order of Megatron's combined 1F1B, with `batches` microbatches of each."""
    return Decided(relayout.forward_beside_backward(graph, batches))

"""Priorities: what is needed sooner, or by more, moves first."""

from __future__ import annotations

from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import DEGREES, SIZES, K, M
from syntony.overlap.policies.passes.cut import GRADIENTS, chunk
from syntony.overlap.policies.passes.cut import slice as sliced
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.fuse import fuse_best
from syntony.overlap.policies.passes.inner import inner_lanes
from syntony.overlap.policies.policy import LAST, Decided, published
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


@published("Jayarajan et al., P3, MLSys 2019", slice=(200 * K, (50 * K, 200 * K, 800 * K)))
def p3(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Slices of 50,000 numbers. Slices of the first layers go first. The push and pull of the paper's servers is one
    sum here."""
    return Decided(sliced(defer(graph), slice), orders.need)


@published("Hashemi et al., TicTac, MLSys 2019", times=(1, (0, 1)))
def tictac(graph: Graph, cost: Cost, times: int) -> Decided:
    """Orders transfers by the computation that waits for them: from the graph alone (times=0, TIC) or with times in
    seconds (times=1, TAC)."""
    return Decided(defer(graph), orders.critical if times else orders.need)


@published(
    "Peng et al., ByteScheduler, SOSP 2019",
    slice=(4 * M, SIZES),
    credit=(8 * M, (0, *SIZES)),
)
def bytescheduler(graph: Graph, cost: Cost, slice: int, credit: int) -> Decided:
    """Sends partitions by priority, with at most `credit` bytes in flight, which the order takes into account. The
    trainer's [overlap] tune sets both knobs while training, by a Gaussian process."""
    return Decided(sliced(defer(graph), slice), orders.need, dict.fromkeys(GRADIENTS, credit) if credit else {})


@published("Bao et al., PACE, INFOCOM 2020", slice=(M, SIZES))
def pace(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Fuses sums, and preempts them by those that are needed sooner. It chooses the fusion that makes the preempted
    step shortest."""

    def preempted(fused: Graph) -> Decided:
        return Decided(sliced(defer(fused), slice), orders.need)

    def seconds(fused: Graph) -> float:
        return simulate(preempted(fused).plan("", {}, cost), cost).seconds

    return preempted(fuse_best(graph, cost, seconds))


@published(
    "Li et al., Lina, USENIX ATC 2023",
    without="its placing of experts for inference: nothing is served here",
    slice=(M, SIZES),
    degree=(2, DEGREES),
)
def lina(graph: Graph, cost: Cost, slice: int, degree: int) -> Decided:
    """all_to_all goes before all_reduce. Both are cut into pieces, so that an all_to_all waits for at most one piece of
    an all_reduce."""
    lanes = inner_lanes(graph, "ep")
    return Decided(sliced(chunk(graph, degree, lanes), slice), orders.by_class(Kind.ALL_TO_ALL), priorities=LAST)

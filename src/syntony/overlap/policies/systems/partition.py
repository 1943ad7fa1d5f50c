"""Communication taken apart: into shifts, primitives, levels or pieces, each of which moves beside other work."""

from __future__ import annotations

from dataclasses import replace

from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import DEGREES, SIZES, M
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.cut import slice as sliced
from syntony.overlap.policies.passes.defer import defer, over_the_cut
from syntony.overlap.policies.passes.fuse import fuse
from syntony.overlap.policies.passes.inner import in_turn, inner_lanes
from syntony.overlap.policies.passes.loop import can_loop, loop
from syntony.overlap.policies.passes.tiles import update_by_slice
from syntony.overlap.policies.policy import LAST, Decided, best_of, published
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


@published(
    "Wang et al., Overlap Communication with Dependent Computation, ASPLOS 2023",
    ways=(0, (0, 1, 2)),
    pieces=(0, (0, 2, 4, 8)),
)
def collective_matmul(graph: Graph, cost: Cost, ways: int, pieces: int) -> Decided:
    """Gathers and scatters of sequences as shifts, shard by shard beside the products of matrices that take or make
    them, in one direction or in two (ways=0: the faster). Where sums are whole (sequence=false) or keys go round, and
    with `pieces`, the batch is cut instead: in so many, or (0) as many as ranks."""
    lanes = inner_lanes(graph, "tp", "cp")
    if pieces or not can_loop(graph):
        return Decided(in_turn(graph, pieces or graph.groups[lanes[0]], lanes), orders.critical)
    return best_of(cost, [Decided(loop(graph, way), orders.critical) for way in ([ways] if ways else (1, 2))])


@published(
    "Mahajan et al., SYNDICATE, NSDI 2023",
    missing="motifs (split, level, order) as moves of its search, both levels optimized together",
    slice=(M, SIZES),
    local=(2, (1, 2, 4, 8)),
)
def syndicate(graph: Graph, cost: Cost, slice: int, local: int) -> Decided:
    """Pieces of collectives packed on the networks of two levels at once."""
    return Decided(sliced(defer(relayout.by_level(graph, local)), slice), orders.critical)


@published(
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
    cut = [in_turn(level, count, inner) for level in levels for count in sorted({1, degree})]
    found = [sliced(one, slice) for level in cut for one in over_the_cut(level)]
    return best_of(cost, [Decided(one, orders.need, priorities=LAST) for one in found])


@published("Zhang et al., DeAR, ICDCS 2023", buffer=(4 * M, (0, *SIZES)))
def dear(graph: Graph, cost: Cost, buffer: int) -> Decided:
    """reduce_scatter beside the backward, all_gather beside the next forward, both fused. All sums come before the
    first gather."""
    split = relayout.split_reduce(graph)
    return Decided(defer(fuse(split, buffer) if buffer else split), orders.by_class(Kind.REDUCE_SCATTER))


@published("Jangda et al., CoCoNet, ASPLOS 2022", slice=(M, SIZES), pieces=(2, DEGREES))
def coconet(graph: Graph, cost: Cost, slice: int, pieces: int) -> Decided:
    """The fastest program that its transformations lead to: all_reduce split, the optimizer on shards in between
    (reorder), slice by slice as sums come (fuse); products of matrices beside their collectives (overlap), in pieces,
    or shard by shard in the order of the product."""
    inner = [lane for lane in ("tp", "cp") if lane in graph.groups]
    split = [graph, *([relayout.split_reduce(graph)] if "dp" in graph.groups else [])]
    beside = [in_turn(one, count, inner) for one in split for count in sorted({1, pieces})]
    beside += [loop(one) for one in split if can_loop(one)]
    cut = [sliced(one, slice) for one in beside]
    return best_of(cost, [Decided(one) for whole in cut for one in (whole, update_by_slice(whole))])


@published(
    "Pati et al., T3, ASPLOS 2024",
    simulated="t3 is hardware, which starts transfers when stores are counted",
    pieces=(8, (4, 8, 16)),
)
def t3(graph: Graph, cost: Cost, pieces: int) -> Decided:
    """Hardware starts what moves as its producer stores it, piece by piece: only the first has a launch and a latency.
    Sums in memory take no time of the processor."""
    cut = in_turn(graph, pieces, inner_lanes(graph, "tp", "cp"))
    return Decided(replace(cut, triggered=True), orders.critical)

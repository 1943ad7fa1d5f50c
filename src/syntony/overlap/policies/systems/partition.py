"""Splits communication into shifts, primitives, levels or pieces, each of which runs beside other work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import DEGREES, SIZES, M
from syntony.overlap.policies.passes import motifs, relayout
from syntony.overlap.policies.passes.cut import slice as sliced
from syntony.overlap.policies.passes.defer import defer, over_the_cut
from syntony.overlap.policies.passes.fuse import fuse
from syntony.overlap.policies.passes.inner import in_turn, inner_lanes
from syntony.overlap.policies.passes.loop import can_loop, loop
from syntony.overlap.policies.passes.tiles import update_by_slice
from syntony.overlap.policies.policy import LAST, Decided, best_of, published
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


@published(
    "Wang et al., Overlap Communication with Dependent Computation, ASPLOS 2023",
    ways=(0, (0, 1, 2)),
    pieces=(0, (0, 2, 4, 8)),
)
def collective_matmul(graph: Graph, cost: Cost, ways: int, pieces: int) -> Decided:
    """Replaces gathers and scatters of sequences by shifts. Each shard moves beside the matrix products that need or
    produce other shards, in one direction or in two (ways=0: the faster). With sequence=false, with ring attention, and
    with `pieces`, it cuts the batch instead: into `pieces` parts, or (0) as many as there are ranks."""
    lanes = inner_lanes(graph, "tp", "cp", "outer")
    if pieces or not can_loop(graph):
        return Decided(in_turn(graph, pieces or graph.groups[lanes[0]], lanes), orders.critical)
    return best_of(cost, [Decided(loop(graph, way), orders.critical) for way in ([ways] if ways else (1, 2))])


@published("Mahajan et al., SYNDICATE, NSDI 2023", slice=(M, (M,)), local=(2, (1, 2, 4, 8)), moves=(40, (40,)))
def syndicate(graph: Graph, cost: Cost, slice: int, local: int, moves: int) -> Decided:
    """A random walk (MCMC) of `moves` moves over all choices at once: each layer's sum whole, split around its update
    or by levels of `local` ranks; in slices; sooner or later. It begins with the best plan that treats all layers
    alike."""
    forms, step = motifs.forms_of(graph, local), simulate(Decided(graph).plan("", {}, cost), cost).seconds

    def decided(one: motifs.Motifs) -> Decided:
        cut = motifs.in_slices(defer(motifs.with_sums(graph, one.forms, local)), one.slices)
        return Decided(cut, motifs.led(orders.critical, one.lead, step))

    sizes = motifs.fitting(graph, (0, slice, *SIZES))
    alike = [motifs.Motifs.alike(graph, form, size) for form in forms for size in sizes[:2]]
    return motifs.walked(alike, forms, sizes, cost, decided, moves)


@published("Chen et al., Centauri, ASPLOS 2024", slice=(M, SIZES), local=(2, (1, 2, 4, 8)), degree=(2, DEGREES))
def centauri(graph: Graph, cost: Cost, slice: int, local: int, degree: int) -> Decided:
    """Makes one decision after another and keeps what is simulated fastest: each layer's sum whole, split (primitive)
    or by level (group), in slices (workload); products in pieces beside what they wait for; updates across the boundary
    between steps. Tensor and expert parallelism use levels inside their collectives' algorithms."""
    inner = [lane for lane in ("tp", "ep", "cp", "outer") if lane in graph.groups]
    forms = motifs.forms_of(graph, gcd(local, graph.groups["dp"])) if "dp" in graph.groups else ("",)

    def decided(chosen: Sequence[str], count: int) -> Decided:
        whole = over_the_cut(in_turn(motifs.with_sums(graph, chosen, local), count, inner))
        found = [cut for one in whole for cut in (one, sliced(one, slice))]
        return best_of(cost, [Decided(one, orders.need, priorities=LAST) for one in found])

    return motifs.by_layer(graph, cost, forms, sorted({1, degree}), decided)


@published("Zhang et al., DeAR, ICDCS 2023", buffer=(4 * M, (0, *SIZES)))
def dear(graph: Graph, cost: Cost, buffer: int) -> Decided:
    """Runs reduce_scatter beside the backward and all_gather beside the next forward, both fused. All sums come before
    the first gather."""
    split = relayout.split_reduce(graph)
    return Decided(defer(fuse(split, buffer) if buffer else split), orders.by_class(Kind.REDUCE_SCATTER))


@published("Jangda et al., CoCoNet, ASPLOS 2022", slice=(M, SIZES), pieces=(2, DEGREES))
def coconet(graph: Graph, cost: Cost, slice: int, pieces: int) -> Decided:
    """The fastest program that CoCoNet's transformations lead to: all_reduce split, with the optimizer on shards in
    between (reorder), slice by slice as sums arrive (fuse); matrix products beside their collectives (overlap), in
    pieces, or shard by shard in the order of the product."""
    inner = [lane for lane in ("tp", "cp", "outer") if lane in graph.groups]
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
    """Hardware starts a transfer, piece by piece, while its producer stores the data. Only the first piece has a launch
    and a latency. Sums in memory take no processor time."""
    cut = in_turn(graph, pieces, inner_lanes(graph, "tp", "cp", "outer"))
    return Decided(replace(cut, triggered=True), orders.critical)

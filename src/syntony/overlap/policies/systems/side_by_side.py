"""Parts of the batch side by side: one computes while another communicates."""

from __future__ import annotations

from dataclasses import replace

from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import DEGREES
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.policies.passes.inner import in_turn, inner_lanes
from syntony.overlap.policies.passes.loop import can_loop, loop
from syntony.overlap.policies.policy import LAST, Decided, best_of, published
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph


@published(
    "Li et al., Automated Tensor Model Parallelism with Overlapped Communication (Oases), 2023",
    missing="in the trainer all layers have one tensor-parallel degree; its planner of one for each layer is simulated "
    "(overlap degrees)",
    batches=(0, (0, 2, 4)),
)
def oases(graph: Graph, cost: Cost, batches: int) -> Decided:
    """Runs sub-batches side by side: one computes while the other's sums move. Recomputed activations are not sent
    again. `batches` is the number of sub-batches; 0: the number that is simulated fastest."""
    inner_lanes(graph, "tp", "cp", "outer", "ep")
    counts = [batches] if batches else [n for n in (2, 4) if relayout.layout_of(graph).microbatches % n == 0] or [2]
    return best_of(cost, [Decided(relayout.side_by_side(graph, count), orders.critical) for count in counts])


@published("Wang et al., Domino, 2024", batches=(2, (2, 4)))
def domino(graph: Graph, cost: Cost, batches: int) -> Decided:
    """Cuts the batch into independent parts that take turns, layer by layer: the tensor-parallel sums of one part move
    while another computes. Weights are not cut."""
    lanes = inner_lanes(graph, "tp")
    alone = graph.layout is None or graph.layout.microbatches == 1  # then its rows take turns
    return Decided(in_turn(graph, batches, lanes) if alone else relayout.side_by_side(graph, batches))


@published("none: list scheduling (Graham, 1969) of computing, too", pieces=(0, (0, *DEGREES)))
def interleave(graph: Graph, cost: Cost, pieces: int) -> Decided:
    """Computes whatever is ready, of any microbatch, the longest path to the end first. Microbatches begin one after
    another. Simulation decides how far apart, and whether in pieces (0: their number, too) or shard by shard. A
    transfer has its link alone, unless several at once are faster."""
    relayout.unordered(graph, "interleave")
    lanes = inner_lanes(graph, "tp", "cp", "outer", "ep")
    cut = [chunk(graph, count, lanes) for count in ([pieces] if pieces else DEGREES)]
    unlike = [*{len(one): one for one in cut}.values(), *([loop(graph)] if can_loop(graph) and not pieces else [])]
    found = [relayout.first_come(one, cost, orders.staggered(share)) for one in unlike for share in orders.STAGGERS]
    alone = best_of(cost, [Decided(one, orders.critical, dict.fromkeys(lanes, 1), LAST) for one in found])
    return best_of(cost, [alone, replace(alone, windows={})])


@published("DeepSeek-AI, DualPipe (DeepSeek-V3 Technical Report), 2024", batches=(1, (1, 2)))
def dualpipe(graph: Graph, cost: Cost, batches: int) -> Decided:
    """Runs the forward of one microbatch beside the backward of another. In a pipeline it uses the V form, with one
    copy of the weights. On one device it uses the order of Megatron's combined 1F1B, with `batches` microbatches of
    each."""
    return Decided(relayout.forward_beside_backward(graph, batches))

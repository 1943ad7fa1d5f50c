"""The plain order, which is the baseline, and sums of gradients in the order of the backward."""

from __future__ import annotations

from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import SIZES, M
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.backward import delay_weight_grad, last_backwards, split_backward
from syntony.overlap.policies.passes.cut import GRADIENTS
from syntony.overlap.policies.passes.cut import slice as sliced
from syntony.overlap.policies.passes.defer import over_the_cut
from syntony.overlap.policies.passes.factors import can_factor, factored, lighter, with_factors
from syntony.overlap.policies.passes.fuse import fuse
from syntony.overlap.policies.policy import LAST, Decided, best_of, published
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind

LATE = (4, 8)  # first layers whose gradients of weights may come last


@published("none: the plain order")
def fifo(graph: Graph, cost: Cost) -> Decided:
    """Starts each transfer as soon as its data is ready, the first ready first. The next step waits for all updates."""
    return Decided(graph)


@published("none: everything after the last backward")
def serial(graph: Graph, cost: Cost) -> Decided:
    """Starts sums of gradients when nothing is left to compute. It is the baseline without overlap."""
    return Decided(relayout.after_backward(graph))


@published("none: the order that the simulator finds best in most steps", slice=(M, SIZES))
def need(graph: Graph, cost: Cost, slice: int) -> Decided:
    """Cuts transfers into slices and sends those first that are needed soonest, also across the boundary between steps.
    Gradients of the first layers' weights are computed late if that saves time."""
    found = [one for late in _first_layers_late(graph) for one in over_the_cut(late)]
    return best_of(cost, [Decided(sliced(one, slice), orders.need, priorities=LAST) for one in found])


def _first_layers_late(graph: Graph) -> list[Graph]:
    """The step as it is, and with late weight gradients of some numbers of first layers, unless it has an order of its
    own or these gradients cannot be separated."""
    own = graph.layout is None or graph.layout.pp > 1 or any(op.kind is Kind.BACKWARD_WEIGHT for op in graph)
    apart = all(layer.halves[1] > 0 for layer in graph.layers)
    if own or not apart or not any(op.lane in GRADIENTS for op in graph):
        return [graph]
    return [graph, *(delay_weight_grad(split_backward(graph, last_backwards(graph, n)), n) for n in LATE)]


@published("Zhang et al., Poseidon, USENIX ATC 2017", send=("best", ("best", "sums", "factors")))
def poseidon(graph: Graph, cost: Cost, send: str) -> Decided:
    """Wait-free backpropagation: a layer's sum starts when its gradient exists. Layers whose gradients have smaller
    factors send the factors instead (`send`: `factors` for all that have some, `sums` for none). The result is exact,
    because all ranks multiply and add in the same order."""
    if send not in ("best", "sums", "factors"):
        raise UserError(f"policy poseidon: send is {send!r}; it must be best, sums or factors")
    if send == "factors":
        return Decided(with_factors(graph, factored(graph)))
    hybrid = lighter(graph, cost) if send == "best" and can_factor(graph) else []
    return best_of(cost, [Decided(graph), *([Decided(with_factors(graph, hybrid))] if hybrid else [])])


@published(
    "Sun et al., GradientFlow, 2019",
    without="its sparsification, which loses gradients",
    pool=(16 * M, (4 * M, 16 * M, 64 * M)),
)
def gradientflow(graph: Graph, cost: Cost, pool: int) -> Decided:
    """Lazy all_reduce: collects gradients in a pool and sums the pool whenever it is full."""
    return Decided(fuse(graph, pool))


@published("Li et al., PyTorch Distributed, VLDB 2020", first=(M, (M,)), cap=(25 * M, (M, 2 * M, 4 * M, 25 * M)))
def ddp(graph: Graph, cost: Cost, first: int, cap: int) -> Decided:
    """Sums gradients in buckets, in the order of the backward. The first bucket is small."""
    return Decided(fuse(graph, first, cap))

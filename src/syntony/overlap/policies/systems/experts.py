"""Mixtures of experts: moves tokens, or the experts, beside computation."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd

from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import DEGREES, SIZES, M
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.cut import chunk, divisors
from syntony.overlap.policies.passes.cut import slice as sliced
from syntony.overlap.policies.passes.experts import chosen_by_layer, move_experts, pulled, with_guests
from syntony.overlap.policies.passes.inner import inner_lanes
from syntony.overlap.policies.policy import LAST, Decided, best_of, published
from syntony.overlap.step.cost import Cost, line_of
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


@published("Lepikhin et al., GShard, ICLR 2021")
def gshard(graph: Graph, cost: Cost) -> Decided:
    """all_to_all, experts, all_to_all, one after the other. Its capacity, which drops tokens, is the trainer's [model]
    capacity, and its auxiliary loss is [model] balance."""
    inner_lanes(graph, "ep")
    return Decided(graph)


@published("Hwang et al., Tutel, MLSys 2023", degree=(0, (0, *DEGREES)))
def tutel(graph: Graph, cost: Cost, degree: int) -> Decided:
    """all_to_all and experts in `degree` chunks; 0: the best of 1, 2, 4, 8. If it is expected to save time, parallelism
    changes from microbatch to microbatch without a copy: either tokens are sent, or all experts are. The tuner chooses
    the all_to_all (`direct`, or by level)."""
    lanes = inner_lanes(graph, "ep")
    whole = graph.layout is None or not graph.layout.dedup
    asked = whole and any(layer.demand is not None for layer in graph.layers)
    forms = [graph, with_guests(graph, cost, together=True)] if asked else [graph]
    found = [chunk(form, one, lanes) for form in forms for one in ([degree] if degree else DEGREES)]
    return best_of(cost, map(Decided, found))


@published("He et al., FasterMoE, PPoPP 2022", hot=(0, (0,)), degree=(4, DEGREES))
def fastermoe(graph: Graph, cost: Cost, hot: int, degree: int) -> Decided:
    """Copies experts in demand to the ranks that ask for them ("shadows"). They are chosen for each microbatch by its
    counts, with the paper's model, beside exchanges in `degree` groups of ranks: with as many as ranks, a rank begins
    with what travels nowhere. Or it always copies a block's first `hot` experts."""
    lanes = inner_lanes(graph, "ep")
    welcoming = move_experts(graph, hot) if hot else with_guests(graph, cost)
    return Decided(chunk(welcoming, degree, lanes), orders.need)


@published("Shi et al., PipeMoE, INFOCOM 2023")
def pipemoe(graph: Graph, cost: Cost) -> Decided:
    """Computes the degree from linear costs: hidden / k is left exposed, and k chunks take k x start, whatever their
    size. The least sum is at k = sqrt(hidden / start), or near it where rows do not divide. Its order is tutel's, so
    that both have one plan if tutel's trials lead to that degree."""
    lanes = inner_lanes(graph, "ep")
    (seconds, _), wires = cost.seconds(graph), cost.wires_of(graph)
    moved = [row for row, op in enumerate(graph) if op.kind is Kind.ALL_TO_ALL]
    inner = [row for row, op in enumerate(graph) if op.kind is Kind.FORWARD and graph.layers[op.layer].expert]
    lines = [line_of(wires, graph.ops[row].lane, Kind.ALL_TO_ALL) for row in moved]
    start = sum(line.alpha + line.fixed for line in lines) / len(lines) + cost.launch + cost.start
    hidden = min(sum(seconds[row] for row in rows) / len(rows) for rows in (moved, inner))
    degree = min(divisors(graph, 8, lanes), key=lambda k: hidden / k + k * start)
    return Decided(chunk(graph, degree, lanes))


@published(
    "Shi et al., ScheMoE, EuroSys 2024",
    without="its compression, which loses digits",
    degree=(2, DEGREES),
)
def schemoe(graph: Graph, cost: Cost, degree: int) -> Decided:
    """Sends chunks in the best of three orders, which includes the best of all for a layer: as they are ready, longest
    path first, or by need. all_to_all within hosts runs beside all_to_all between hosts, as `direct` always does.
    Without compression to place, the first of them is often the best: then the plan is that of tutel's degree."""
    cut = chunk(graph, degree, inner_lanes(graph, "ep"))
    return best_of(cost, [Decided(cut, rule) for rule in (orders.fifo, orders.critical, orders.need)])


@published("Liu et al., Janus, SIGCOMM 2023", groups=(0, (0, *DEGREES)))
def janus(graph: Graph, cost: Cost, groups: int) -> Decided:
    """Moves experts instead of tokens, in those layers for which the step becomes faster. Each expert moves once per
    step, whatever the number of microbatches, and once per host if rings and gathers use levels. Experts arrive before
    they are needed, in `groups` groups (0: the number that is simulated fastest), and each is used while others are on
    their way."""
    inner_lanes(graph, "ep")

    def moved(layers: Collection[int], count: int = groups or 1) -> Decided:
        return Decided(pulled(move_experts(graph, layers=layers), count), orders.need) if layers else Decided(graph)

    best = chosen_by_layer(graph, moved, cost)
    layers = [i for i, layer in enumerate(best.graph.layers) if layer.hot]
    return best_of(cost, [best, *(moved(layers, count) for count in (() if groups else DEGREES[1:]))])


@published("Gao et al., FlowMoE, NeurIPS 2025", degree=(2, DEGREES), slice=(M, SIZES))
def flowmoe(graph: Graph, cost: Cost, degree: int, slice: int) -> Decided:
    """One pipeline of attention, gate, experts and all_to_all over `degree` sub-batches: microbatches, or groups of
    experts if these are too few. Sums of gradients, in chunks of lower priority, fill its gaps."""
    lanes = inner_lanes(graph, "ep")
    layout = graph.layout
    together = gcd(degree, layout.microbatches) if layout is not None and layout.pp == 1 else 1
    flow = relayout.side_by_side(graph, together) if together > 1 else graph
    flow = chunk(flow, degree // together, lanes)
    return Decided(sliced(flow, slice), orders.by_class(Kind.ALL_TO_ALL), priorities=LAST)

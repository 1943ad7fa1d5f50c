"""Reorders computation: the stages of pipelines, gradients of weights, recomputed activations."""

from __future__ import annotations

from collections.abc import Iterator

from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes import relayout
from syntony.overlap.policies.passes.backward import delay_weight_grad, last_backwards, split_backward
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.recompute import balanced, hide_recompute, within_memory
from syntony.overlap.policies.policy import Decided, best_of, published
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind


@published("Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023", loops=(2, (1, 2, 4)))
def breadth_first(graph: Graph, cost: Cost, loops: int) -> Decided:
    """Each device has several chunks of layers (looped) and runs all microbatches of a chunk before the next chunk."""
    return Decided(relayout.loop_stages(graph, loops))


@published("Oh et al., Out-of-order Backprop, EuroSys 2022", first=(4, (0, 1, 2, 4, 8, 16)))
def ooo_backprop(graph: Graph, cost: Cost, first: int) -> Decided:
    """Computes gradients of weights outside the critical path of the backward: those of the first layers late, and of
    these the very first layer's first. In a pipeline they fill the times when a device would wait. Layers are dealt to
    devices in turn (modulo allocation), in the number of chunks per device that is simulated fastest."""
    if graph.layout and graph.layout.pp > 1:
        return best_of(cost, [Decided(split_backward(one), movable=(Kind.BACKWARD_WEIGHT,)) for one in _modulo(graph)])
    chained = any(op.kind.moves and op.microbatch >= 0 and not op.pieces for op in graph)
    split = split_backward(graph, None if chained else last_backwards(graph, first))
    return Decided(defer(delay_weight_grad(split, first)), orders.need)


def _modulo(graph: Graph) -> Iterator[Graph]:
    """The pipeline as it is, and with chunk i of its layers on device i mod pp, from two chunks to single layers."""
    yield graph
    units = sum(not layer.joined for layer in graph.layers) // relayout.layout_of(graph).pp
    for loops in sorted({min(2**power, units) for power in range(1, units.bit_length() + 1)} - {0, 1}):
        yield relayout.loop_stages(graph, loops)


@published("Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024", memory=("1p", ("1p", "2p", "v")))
def zero_bubble(graph: Graph, cost: Cost, memory: str) -> Decided:
    """Splits the backward in two and searches the order with measured times: with the memory of 1f1b (1p), twice that
    (2p), or in a V (v). Updates do not wait for the norm of other devices, which is verified later: clip=optimistic."""
    if memory not in ("1p", "2p", "v"):
        raise UserError(f"policy zero_bubble: memory is {memory!r}; it must be 1p, 2p or v")
    return Decided(relayout.reorder_pipeline(graph, f"zb{memory}", cost))


@published("Chen et al., Lynx, 2024", memory=(0, (0,)), ahead=(4, (1, 2, 4, 8, 16)), alike=(1, (1,)))
def lynx(graph: Graph, cost: Cost, memory: int, ahead: int, alike: int) -> Decided:
    """Recomputes activations while the device waits for communication, up to `ahead` ops early. It chooses segment by
    segment what costs least within `memory` bytes (0: recompute all), by an integer program for all layers that are
    alike, or (alike=0) for each layer. Layers move to other stages if that balances the recomputation."""
    if not memory:
        return Decided(hide_recompute(graph, ahead), movable=(Kind.RECOMPUTE,))
    return balanced(graph, cost, lambda one: within_memory(one, cost, memory, ahead, bool(alike)))

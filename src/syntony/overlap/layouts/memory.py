"""Bytes that stay on a device from step to step: weights, their gradients, and Adam's state.

    16-bit elements    weights 2, gradients 2, and in fp32 a master copy and two moments: 12 bytes a parameter
    32-bit elements    weights 4, gradients 4, two moments: 8

Islands (`Layout.apart`) keep, of what a rank updates, the weights of the last exchange, the momentum of their updates,
and two copies of every exchange that may be under way: what is sent, and what the rank has changed itself.

Sharded state (`Layout.zero`) is divided by the ranks that share it. Gathered weights and gradients before sharding come
and go within a step, like activations: the simulator counts them (Timeline.peak).
"""

from __future__ import annotations

from collections.abc import Mapping

from syntony.overlap.predict.simulation import Timeline
from syntony.overlap.step.layout import Parallel
from syntony.overlap.step.op import Kind
from syntony.overlap.step.sharding import Sharding


def optimizer_bytes(element: int) -> int:
    """Bytes per parameter whose weight has `element` bytes."""
    return 8 if element >= 4 else 12


def exchanged(layout: Parallel) -> int:
    """The copies of weights that islands keep, of what a rank updates."""
    return (1 + (layout.outer == "nesterov") + 2 * max(1, layout.delay)) if layout.apart else 0


def lasting(layer: Sharding, layout: Parallel, element: int) -> float:
    """Bytes of one layer that stay on a rank; its weights have elements of `element` bytes."""
    states = layer.updated / element * (optimizer_bytes(element) + 4 * exchanged(layout))
    gradients = 0 if layer.divides(2) else layer.weights
    weights = layer.weights / (layer.ranks if layer.divides(3) else 1)
    near = layer.weights / layout.secondary if layout.secondary > 1 else 0
    return states + gradients + weights + near


def needed(timeline: Timeline, element: int) -> Mapping[int, float]:
    """Bytes that each device needs in a simulated step: permanent state, plus the peak of temporary data.

    Raises ValueError for a step without a layout.
    """
    graph = timeline.plan.graph
    if graph.layout is None:
        raise ValueError("the step has no layout")
    stays = [lasting(one, graph.layout, element) for one in Sharding.of_all(graph.layers, graph.layout)]
    found = dict.fromkeys(graph.devices, 0.0)
    for device, layer in {(op.device, op.layer) for op in graph if op.kind is Kind.FORWARD}:
        found[device] += stays[layer] + stays[graph.shadow(layer)]
    return {device: size + timeline.peak.get(device, 0.0) for device, size in found.items()}

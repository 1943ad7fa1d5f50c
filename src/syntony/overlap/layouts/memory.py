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

import numpy as np
from numpy.typing import NDArray

from syntony.overlap.predict.simulation import Timeline
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout, Parallel
from syntony.overlap.step.op import Kind

Doubles = NDArray[np.float64]


def optimizer_bytes(element: int) -> int:
    """Bytes per parameter whose weight has `element` bytes."""
    return 8 if element >= 4 else 12


def shards(layer: LayerSpec, layout: Layout) -> int:
    """The number of ranks among which sharded state of the layer is divided."""
    if layer.sums in ("whole", "split"):
        return 1 if layer.sums == "whole" else layout.sizes["dp"] * layout.replicas
    return layout.sizes["edp" if layer.expert and layout.ep > 1 else "dp"]


def updaters(layer: LayerSpec, layout: Layout) -> int:
    """The number of ranks among which the layer's update, and so the optimizer's state, is divided."""
    spread = layout.replicas if layout.spread and not (layer.expert and layout.ep > 1) else 1
    return shards(layer, layout) * spread if layout.zero else 1


def exchanged(layout: Parallel) -> int:
    """The copies of weights that islands keep, of what a rank updates."""
    return (1 + (layout.outer == "nesterov") + 2 * max(1, layout.delay)) if layout.apart else 0


def lasting(
    weights: Doubles, parts: Doubles, updating: Doubles, zero: int, element: int, secondary: int = 1, copies: int = 0
) -> Doubles:
    """Bytes of each layer if a rank has `weights` bytes of weights, a share of one in `parts`, and updates one in
    `updating`, of which islands keep so many `copies` in fp32; one in `secondary` is a secondary shard."""
    states = weights / element * (optimizer_bytes(element) + 4 * copies) / updating
    gradients = np.where(parts > 1, 0.0, weights) if zero >= 2 else weights
    return states + gradients + weights / (parts if zero >= 3 else 1) + (weights / secondary if secondary > 1 else 0)


def needed(timeline: Timeline, element: int) -> Mapping[int, float]:
    """Bytes that each device needs in a simulated step: permanent state, plus the peak of temporary data.

    Raises ValueError for a step without a layout.
    """
    graph = timeline.plan.graph
    if graph.layout is None:
        raise ValueError("the step has no layout")
    weights = np.array([layer.weights for layer in graph.layers], np.float64)
    parts = np.array([shards(layer, graph.layout) if graph.layout.zero else 1 for layer in graph.layers], np.float64)
    updating = np.array([updaters(layer, graph.layout) for layer in graph.layers], np.float64)
    stays = lasting(
        weights, parts, updating, graph.layout.zero, element, graph.layout.secondary, exchanged(graph.layout)
    )
    found = dict.fromkeys(graph.devices, 0.0)
    for device, layer in {(op.device, op.layer) for op in graph if op.kind is Kind.FORWARD}:
        found[device] += float(stays[layer])
    return {device: size + timeline.peak.get(device, 0.0) for device, size in found.items()}

"""Small models for the tests of the scheduler."""

from __future__ import annotations

from dataclasses import replace

from syntony.overlap.step.graph import CommSpec, LayerSpec
from syntony.overlap.step.op import Kind

SUM = (
    CommSpec("enter", "tp", None, Kind.ALL_REDUCE, 100, most=240),
    CommSpec("leave", "tp", Kind.ALL_REDUCE, None, 100, most=240),
)
TOKENS = (
    CommSpec("dispatch", "ep", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, 100, "experts", 240),
    CommSpec("combine", "ep", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, 100, "experts", 240),
)


def dense(count: int, weights: int = 1000, flops: float = 1.0) -> list[LayerSpec]:
    """Layers of one segment: their backward takes twice their forward."""
    return [LayerSpec(f"layer{i}", weights, (flops,), activations=500, output=100) for i in range(count)]


def sharded(count: int) -> list[LayerSpec]:
    """Layers with a tensor-parallel sum on their way in, backward, and on their way out, forward."""
    return [LayerSpec(f"layer{i}", 1000, (1.0, 8.0, 1.0), SUM, activations=500, output=100) for i in range(count)]


def experts(count: int) -> list[LayerSpec]:
    """A dense layer, then one of experts, and so on."""
    return [
        LayerSpec(f"experts{i}", 4000, (1.0, 4.0, 1.0), TOKENS, activations=500, output=100, expert=True)
        if i % 2
        else LayerSpec(f"dense{i}", 1000, (4.0,), activations=500, output=100)
        for i in range(count)
    ]


def moving(layer: LayerSpec, ranks: int) -> tuple[LayerSpec, ...]:
    """A layer of two experts of each of so many ranks, as it is where half of them come to the tokens, and all."""
    fewer = tuple(replace(transfer, bytes=transfer.bytes // 2) for transfer in layer.transfers)
    still = tuple(replace(transfer, forward=None, backward=None) for transfer in layer.transfers)
    half, whole = (LayerSpec(f"shadow of {layer.name}", ranks * layer.weights // share, ()) for share in (2, 1))
    return (
        replace(layer, weights=layer.weights // 2, transfers=fewer, hot=ranks, shadow=half),
        replace(layer, weights=0, transfers=still, hot=2 * ranks, shadow=whole),
    )


def moved(count: int) -> list[LayerSpec]:
    """As `experts`, which come to the tokens of two ranks."""
    return [moving(layer, 2)[1] if layer.expert else layer for layer in experts(count)]


def shadowed(count: int) -> list[LayerSpec]:
    """As `experts`, half of which come to the tokens of two ranks."""
    return [moving(layer, 2)[0] if layer.expert else layer for layer in experts(count)]

"""The model as one rank has it: the whole one, cut by every parallelism in turn, from outside. Then the two branches of
a block become one layer, as do neighbouring blocks where the model says so, and segments with nothing between them one.

transformer -> context_parallel -> tensor_parallel -> expert_parallel -> blocks -> together -> fused
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from syntony.trainer.config import Model
from syntony.trainer.model.layer import Layer, welded
from syntony.trainer.model.model import transformer
from syntony.trainer.parallel.context_parallel.split import context_parallel
from syntony.trainer.parallel.expert_parallel.split import expert_parallel
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.split import tensor_parallel


def parallelized(model: Model, mesh: Mesh, rows: int, element: int, even: bool = False, hot: int = 0) -> list[Layer]:
    """All layers, of which a pipeline device takes its own. Raises UserError where the sizes do not fit.

    rows, element    sequences in a microbatch, and bytes of a number that travels
    even             tokens go to experts in turn, and no rank asks how many will come
    hot              so many experts of every block come to the tokens, not tokens to these experts
    """
    tokens = rows * (model.context // mesh.size("cp"))
    model = replace(model, balance=model.balance / mesh.size("tp"))  # every rank of `tp` has the same router
    layers = transformer(model, rows, even)
    layers = context_parallel(layers, model, mesh, tokens, element)
    layers = tensor_parallel(layers, model, mesh, tokens, element)
    layers = expert_parallel(layers, model, mesh, tokens, element, even, hot)
    return [layer.fused() for layer in _together(list(_blocks(layers)), model.together)]


def _blocks(layers: list[Layer]) -> Iterator[Layer]:
    """An attention and the MLP or router behind it are one layer; experts have a group of their own, and stay apart.
    So does a router behind an attention in which something travels: that may be cut in parts, a router may not."""
    place = 0
    while place < len(layers):
        layer, *others = layers[place : place + 2]
        fits = ("mlp", "router") if not any(layer.gaps) else ("mlp",)
        if layer.name.startswith("attention") and others[0].name.startswith(fits):
            layer = welded(layer.name.replace("attention", "block"), (layer, others[0]))
            place += 1
        yield layer
        place += 1


def _together(layers: list[Layer], count: int) -> list[Layer]:
    """So many neighbouring blocks in one layer."""
    first, *blocks, last = layers
    hands = [blocks[place : place + count] for place in range(0, len(blocks), count)]
    return [first, *(welded(hand[0].name, hand) if count > 1 else hand[0] for hand in hands), last]


def boundary(model: Model, mesh: Mesh, rows: int) -> tuple[int, int, int]:
    """Shape of what a layer hands to the next: sequences, a rank's part of their length, width."""
    parts = mesh.size("cp") * (mesh.size("tp") if mesh.sizes.sequence else 1)
    return rows, model.context // parts, model.width

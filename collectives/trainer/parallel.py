"""The model as one rank has it: the whole one, cut by every parallelism in turn, from outside.

transformer -> context_parallel -> tensor_parallel -> expert_parallel -> fused
"""

from __future__ import annotations

from collectives.trainer.config import Model
from collectives.trainer.context_parallel.split import context_parallel
from collectives.trainer.expert_parallel.split import expert_parallel
from collectives.trainer.layer import Layer
from collectives.trainer.mesh import Mesh
from collectives.trainer.model import transformer
from collectives.trainer.tensor_parallel.split import tensor_parallel


def parallelized(model: Model, mesh: Mesh, rows: int, element: int) -> list[Layer]:
    """All layers, of which a pipeline device takes its own. Raises UserError where the sizes do not fit.

    rows, element    sequences in a microbatch, and bytes of a number that travels
    """
    tokens = rows * (model.context // mesh.size("cp"))
    layers = transformer(model, rows)
    layers = context_parallel(layers, model, mesh, tokens, element)
    layers = tensor_parallel(layers, model, mesh, tokens, element)
    layers = expert_parallel(layers, model, mesh, tokens, element)
    return [layer.fused() for layer in layers]


def boundary(model: Model, mesh: Mesh, rows: int) -> tuple[int, int, int]:
    """Shape of what a layer hands to the next: sequences, a rank's part of their length, width."""
    parts = mesh.size("cp") * (mesh.size("tp") if mesh.sizes.sequence else 1)
    return rows, model.context // parts, model.width

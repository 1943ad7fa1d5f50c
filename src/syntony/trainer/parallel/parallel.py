"""One rank's part of the model: every parallelism in turn cuts the whole model, from outside; then the branches of one
layer are merged, as the planner does (overlap/step/models.py defines computation and communication).

transformer -> context_parallel -> tensor_parallel -> expert_parallel -> merged
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from syntony.overlap.step.demand import Visits
from syntony.overlap.step.models import Form, layers_of
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, Layer, merged
from syntony.trainer.model.model import transformer
from syntony.trainer.model.places import Places
from syntony.trainer.parallel.context_parallel.split import context_parallel
from syntony.trainer.parallel.expert_parallel.split import expert_parallel
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.grid import on_grid
from syntony.trainer.parallel.tensor_parallel.rotate import rotating
from syntony.trainer.parallel.tensor_parallel.split import tensor_parallel


def parallelized(
    model: Model,
    mesh: Mesh,
    rows: int,
    element: int,
    even: bool = False,
    hot: int = 0,
    *,
    skew: float = 0.0,
    places: Mapping[int, Places] = MappingProxyType({}),
    visits: Visits | None = None,
) -> list[Layer]:
    """All layers, of which a pipeline device takes its own. Raises UserError if the sizes do not fit.

    rows, element    sequences in a microbatch, and bytes of a communicated number
    even             tokens of all ranks choose experts alike, and row counts are not exchanged: in turn, or (`skew`) by
                     Zipf's law with this exponent
    hot              number of experts of every block that move to the tokens
    places           of experts, by block, if they follow demand
    visits           experts in demand are guests, chosen for each microbatch; None: no guests
    """
    alone = replace(model, balance=model.balance / mesh.size("tp"))  # every rank of `tp` has the same router
    branches = transformer(alone, even, skew, places)
    branches = context_parallel(branches, model, mesh)
    cut = on_grid if mesh.layout.grid else rotating if mesh.layout.rotate else tensor_parallel
    branches = cut(branches, model, mesh)
    branches = expert_parallel(branches, model, mesh, even, hot, visits)
    layers = _together(branches, model.together)
    specs = layers_of(model.spec, mesh.layout, Form(rows, element, even, skew), hot)
    return [merged(layer, spec) for layer, spec in zip(layers, specs, strict=True)]


def _together(branches: list[Branch], blocks: int) -> list[list[Branch]]:
    """The branches of each layer: an attention and the MLP or router behind it, of `blocks` neighbouring blocks.
    Experts have a separate group, and stay apart; so does a router behind an attention with communication: that may be
    cut into parts of the batch, a router may not."""
    first, *middle, last = branches
    layers: list[list[Branch]] = []
    for branch in middle:
        before = layers[-1][-1] if layers else first
        follows = branch.kind == "mlp" or (branch.kind == "router" and not any(before.points))
        neighbour = branch.kind == "attention" and before.kind == "mlp" and branch.index % blocks
        layers += [] if follows or neighbour else [[]]
        layers[-1].append(branch)
    return [[first], *layers, [last]]


def boundary(model: Model, mesh: Mesh, rows: int) -> tuple[int, int, int]:
    """The shape of a rank's part of a layer's output: sequences, length and width."""
    layout = mesh.layout
    parts = layout.cp * layout.slices * (layout.tp if layout.cuts_sequences else 1)
    return rows // layout.batch_parts, model.context // parts, model.width // layout.side

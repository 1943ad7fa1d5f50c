"""Tensor parallelism on a square grid of ranks: every matrix and activation is cut along both of its axes.

    rank (i, j) of 2 x 2 has     x: sequences i, columns j of the width        w: inputs i, outputs j

         x00  x01     w00  w01          y_ij = x_i0 w_0j + x_i1 w_1j            x travels along rows, w along columns
         x10  x11     w10  w11         dx_ij = sum over j' of dy_ij' w_ij'^T    sums along rows
                                       dw_ij = sum over i' of x_i'i^T dy_i'j    sums along columns

This is SUMMA (van de Geijn and Watts, 1997) as used for training by Optimus (Xu, Li, Gong, You: arXiv 2104.05343). Its
broadcasts from one rank of a row after the other together form an all_gather of the row, its reductions a
reduce_scatter, and are implemented so: equal bytes, and one message's latency instead of one per rank.

    x -row-> norm, w -column-> first matrix, attention or activation -row-> second matrix, + x

Sequences are whole on a row, heads on a column, so attention needs no communication. Norms come behind the row's
gather, and see the whole width; every rank has their gains, whose gradients are summed. Gathered weights are dropped
after their use, and gathered again for the backward; if a layer is recomputed, so are activations gathered along a row
(`CommSpec.uses`). The weights of a branch travel together. Tesseract's depth (Wang et al., arXiv 2105.14500) is data
parallelism around such a grid: `dp = 2`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import activated, added
from syntony.trainer.model.layer import Branch, ForwardContext, Move, Run, Transfer, Weight
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.split import cross_entropy
from syntony.trainer.parallel.tensor_parallel.sums import Leave, gathered, scattered

_CUTS = {  # by kind of layer: the axis that is cut along a row of the grid, and that along a column
    "embedding": {"tokens": (1, 0), "positions": (1, 0)},
    "attention": {"qkv": (1, 2), "project": (0, 1)},
    "mlp": {"up": (1, 2), "down": (0, 1)},
    "head": {"logits": (0, 1)},
}


@dataclass(frozen=True)
class Across(Transfer):
    """A rank's columns of an activation (rows, length, width) -> those of all ranks of its row."""

    name: str
    ranks: int

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return gathered(x, self.ranks, axis=2)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return scattered(gradient, self.ranks, axis=2)


@dataclass(frozen=True)
class Down(Transfer):
    """A rank's blocks of a branch's matrices (elements,) -> (ranks, elements) of all ranks of its column."""

    name: str
    ranks: int

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return Move(x, x.new_empty(self.ranks, len(x)))

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        gradient = gradient.contiguous()
        return Move(gradient, torch.empty_like(gradient[0]))


@dataclass(frozen=True)
class _Column:
    """Replaces a ForwardContext for matrix products. `blocks`: by name, those of all ranks of the column,
    (ranks, ..) each."""

    blocks: Mapping[str, Tensor]

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        """The sum of SUMMA's products: columns k of x with inputs k of the matrix."""
        blocks = self.blocks[name].unbind()
        made = [F.linear(part, one.flatten(0, -2)) for part, one in zip(x.chunk(len(blocks), -1), blocks, strict=True)]
        return sum(made[1:], made[0])


def on_grid(branches: Sequence[Branch], model: Model, mesh: Mesh) -> list[Branch]:
    """The branches as rank (`mesh.place["column"]`, `mesh.place["row"]`) of the grid has them. Raises UserError."""
    side, column, row = mesh.layout.side, mesh.place["column"], mesh.place["row"]
    if side == 1:
        return list(branches)
    _check(model, side)
    found = []
    for whole in branches:
        cuts = _CUTS[whole.kind]
        weights = tuple(
            weight.split(cuts[weight.name][0], row, side).split(cuts[weight.name][1], column, side)
            if weight.name in cuts
            else replace(weight, shared=True)
            for weight in whole.weights
        )
        packed = [weight for weight in weights if weight.name in cuts]
        branch, down = replace(whole, weights=weights), Down("weights", side)
        if whole.kind == "embedding":
            found.append(_embedding(branch, packed, down))
        elif whole.kind == "head":
            found.append(_head(branch, packed, down, row, side, row * (model.vocabulary // side)))
        elif whole.kind == "attention":
            _, qkv, attend, *_ = whole.segments
            inner = _attending(qkv, attend)
            found.append(_residual(branch, packed, inner, Across("across", side), down, Across("heads", side)))
        else:
            inner = _feeding(model)
            down = Down("weights_feed", side)
            found.append(_residual(branch, packed, inner, Across("across_feed", side), down, Across("hidden", side)))
    return found


def _check(model: Model, side: int) -> None:
    if model.experts:
        raise UserError("[parallel] grid cuts no experts: [model] experts must be 0")
    learned = ("context",) if model.positions == "learned" else ()
    for name in ("width", "heads", "kv", "hidden", "vocabulary", *learned):
        if getattr(model, name) % side:
            raise UserError(
                f"[parallel] grid has {side} ranks in a row, which must divide [model] {name}, and this is "
                f"{getattr(model, name)}"
            )


def _pack(context: ForwardContext, weights: Sequence[Weight]) -> Tensor:
    return torch.cat([context[weight.name].flatten() for weight in weights])


def _unpack(column: Tensor, weights: Sequence[Weight]) -> dict[str, Tensor]:
    """(ranks, ..) by name, as views."""
    parts = torch.split(column, [weight.elements for weight in weights], 1)
    return {weight.name: part.view(-1, *weight.shape) for weight, part in zip(weights, parts, strict=True)}


Inner = Callable[[ForwardContext, ForwardContext, Tensor], Tensor]
"""(context, that of the column, h) -> the input of the second matrix."""


def _attending(qkv: Run, attend: Run) -> Inner:
    def inner(context: ForwardContext, column: ForwardContext, h: Tensor) -> Tensor:
        return attend(context, *qkv(column, h, h))[0]

    return inner


def _feeding(model: Model) -> Inner:
    def inner(context: ForwardContext, column: ForwardContext, h: Tensor) -> Tensor:
        return activated(model, column.linear(h, "up"))

    return inner


def _residual(
    branch: Branch, weights: Sequence[Weight], inner: Inner, across: Across, down: Down, between: Across
) -> Branch:
    """Segments: fork | norm | first matrix and inner | second matrix and add."""
    norm, second = branch.segments[0], weights[1].name

    def fork(context: ForwardContext, x: Tensor) -> tuple[Tensor, ...]:
        return x.view_as(x), x

    def normed(context: ForwardContext, whole: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return _pack(context, weights), norm(context, whole)[0], x

    def mixed(context: ForwardContext, column: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        blocks = _unpack(column, weights)
        return inner(context, _Column(blocks), h), blocks[second], x  # type: ignore[arg-type]

    def left(context: ForwardContext, o: Tensor, blocks: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return added(context, _Column({second: blocks}).linear(o, second), x)

    return replace(branch, segments=(fork, normed, mixed, left), points=(across, down, between))


def _embedding(branch: Branch, weights: Sequence[Weight], down: Down) -> Branch:
    """Segments: pack | embed and place."""

    def packed(context: ForwardContext, tokens: Tensor) -> tuple[Tensor, ...]:
        return _pack(context, weights), tokens

    def embed(context: ForwardContext, column: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        tables = {name: blocks.flatten(0, 1) for name, blocks in _unpack(column, weights).items()}
        x, begin = F.embedding(tokens, tables["tokens"]), context.piece * tokens.shape[1]
        return (x + tables["positions"][begin : begin + tokens.shape[1]] if "positions" in tables else x,)

    return replace(branch, segments=(packed, embed), points=(down,))


def _head(branch: Branch, weights: Sequence[Weight], down: Down, row: int, side: int, first: int) -> Branch:
    """Segments: fork | norm | logits | loss."""
    norm, (logits, loss) = branch.segments[0], cross_entropy(row, side, first)

    def fork(context: ForwardContext, x: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return x.view_as(x), targets

    def normed(context: ForwardContext, whole: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return _pack(context, weights), *norm(context, whole, targets)

    def part(context: ForwardContext, column: Tensor, h: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return logits(_Column(_unpack(column, weights)), h, targets)

    points = (Across("across", side), down, Leave("totals", side, sequence=False))
    return replace(branch, segments=(fork, normed, part, loss), points=points)

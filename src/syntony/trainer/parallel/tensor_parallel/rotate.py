"""Tensor parallelism in which weights move instead of activations: every rank computes whole branches of its own
sequences, shard by shard, while the shards go round the ranks (overlap/step/rotation.py).

    x ─▶ norm ─▶ h ─▶ part of shard r ─▶ y ─▶ y + part of r-1 ─▶ .. ─▶ y + part of r+1 + x

Shards are those of tensor parallelism (split.py): heads, hidden neurons of the MLP, words of the vocabulary. Segments
take their weights from the ForwardContext, whichever shard it has; autograd sees none of them. A rank adds the parts of
a branch beginning with its own shard, so each rank sums in an order of its own, and losses are those of one process
except for rounding. Weights, gradients, optimizer state and activations take 1/tp of the memory each, beside a few
shards of a branch on their way (Luo et al., RTP, arXiv 2311.01635, call this memory deduplication).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import added
from syntony.trainer.model.layer import Branch, ForwardContext, Product, Run, Transfer, joined
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.split import CUTS, among, cross_entropy


@dataclass(frozen=True)
class Turn(Transfer):
    """Brings the next shard of these weights. All tensors stay on the rank.

    summed    the weight whose products with all shards are added up, so that they have one gradient; "": none
    """

    name: str
    weights: tuple[str, ...]
    summed: str = ""


def rotating(branches: Sequence[Branch], model: Model, mesh: Mesh) -> list[Branch]:
    """The branches as rank `mesh.place["tp"]` has them. Raises UserError."""
    ranks, rank = mesh.size("tp"), mesh.place["tp"]
    _check(model, ranks)
    return [_rotating(whole, rank, ranks, model.vocabulary // ranks) for whole in branches]


def _check(model: Model, ranks: int) -> None:
    if model.experts:
        raise UserError("[parallel] rotate passes no experts round: [model] experts must be 0")
    for name in ("heads", "kv", "hidden", "vocabulary"):
        size = getattr(model, name) or model.heads
        if size % ranks:
            raise UserError(f"[parallel] rotate: tp is {ranks}, which must divide [model] {name}, and this is {size}")


def _rotating(whole: Branch, rank: int, ranks: int, words: int) -> Branch:
    cuts = CUTS[whole.kind]
    weights = tuple(
        weight.split(cuts[weight.name], rank, ranks) if weight.name in cuts else replace(weight, shared=True)
        for weight in whole.weights
    )
    suffix = "_feed" if whole.kind == "mlp" else ""  # distinguishes the two branches of a block
    summed = {"attention": "project", "mlp": "down"}.get(whole.kind, "")
    points = tuple(Turn(f"turn{suffix}_{by}", tuple(cuts), summed) for by in range(1, ranks))
    firsts = [(rank - by) % ranks * words for by in range(ranks)]  # words of the vocabulary, by segment
    if whole.kind == "embedding":
        segments = [_embed(first) for first in firsts]
        segments[0] = joined(_begin(whole.segments[-1]), segments[0])
        segments[-1] = joined(segments[-1], lambda context, x, tokens: (x,))
    elif whole.kind == "head":
        norm, loss = whole.segments[0], cross_entropy(rank, ranks, 0)[1]
        parts = [cross_entropy(first // words, ranks, first)[0] for first in firsts]
        segments = [_head(part) for part in parts]
        segments[0] = joined(norm, segments[0])
        segments[-1] = joined(segments[-1], lambda context, totals, h, targets: loss(context, totals))
    else:
        norm, *inner, _ = whole.segments
        segments = [_part(inner)] * ranks
        segments[0] = joined(norm, segments[0])
        segments[-1] = joined(segments[-1], lambda context, y, h, x: added(context, y, x))
    return replace(whole, weights=weights, segments=tuple(segments), points=points)


def _part(inner: Sequence[Run]) -> Run:
    """(y, h, x) -> (y + this shard's part, h, x); the first one: (h, x) -> (its part, h, x)."""

    def part(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        *sums, h, x = tensors
        made: tuple[Tensor, ...] = (h, h)
        for run in inner:
            made = run(context, made[0], h)
        return sum(sums, made[0]), h, x

    return part


def _head(logits: Run) -> Run:
    """(totals, h, targets) -> (totals with those of this shard, h, targets); the first one: (h, targets)."""

    def part(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        *sums, h, targets = tensors
        (made,) = logits(context, h, targets)
        return sum(sums, made), h, targets

    return part


def _begin(place: Run) -> Run:
    """(tokens) -> (what positions add to nothing, tokens)."""

    def begin(context: ForwardContext, tokens: Tensor) -> tuple[Tensor, ...]:
        table, grows = context.matrix("tokens"), torch.is_grad_enabled()
        x = torch.zeros(*tokens.shape, table.shape[1], dtype=table.dtype, device=table.device, requires_grad=grows)
        return *place(context, x), tokens

    return begin


def _embed(first: int) -> Run:
    """(x, tokens) -> (x + the rows of those tokens that this shard has, tokens)."""

    def embed(context: ForwardContext, x: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        return _LookUp.apply(x, tokens, context, first), tokens  # type: ignore[no-untyped-call]

    return embed


@dataclass(frozen=True)
class _Rows(Product):
    """The gradient of a table: x are rows of it, each with its gradient in dy."""

    def into(self, gradient: Tensor) -> None:
        gradient.zero_().index_add_(0, self.x, self.dy.to(gradient.dtype))


class _LookUp(torch.autograd.Function):
    """x + rows of a table, which autograd does not keep: it is a shard that goes on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tokens: Tensor, context: ForwardContext, first: int) -> Tensor:
        table = context.matrix("tokens")
        inside, place = among(tokens, first, len(table))
        ctx.save_for_backward(tokens)
        ctx.context, ctx.first, ctx.words = context, first, len(table)
        return x + F.embedding(place, table) * inside.unsqueeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        (tokens,) = ctx.saved_tensors
        inside, place = among(tokens, ctx.first, ctx.words)
        ctx.context.made(_Rows("tokens", place[inside], dy[inside]))
        return dy, None, None, None

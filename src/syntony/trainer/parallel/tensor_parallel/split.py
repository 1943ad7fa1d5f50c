"""Tensor parallelism: every rank has a block of every matrix, and computes its part of every branch.

    attention  qkv by heads (outputs) -> project by inputs        embedding  by tokens of the vocabulary
    mlp        up by outputs          -> down by inputs           head       by tokens of the vocabulary
    experts    as the mlp, every one

so that there is no communication between the two matrices of a branch. A rank has the head's logits for its own tokens,
of which some ranks have one more than others. Per position it contributes their log-sum-exp, and the target's logit if
that is its own. So one number per rank and position is communicated, never logits.

All ranks have the same router and all tokens (Enter is before its norm), so they send the same tokens to the same
experts, each to its part of them. The results are parts of sums, and so are the gradients of all of the router's
outputs: of its weights, which are therefore summed (`Weight.shared`), and of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, ForwardContext, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.sums import Enter, Leave, Still

CUTS = {  # by kind of layer: the matrices that are split, and along which axis
    "embedding": {"tokens": 0},
    "attention": {"qkv": 1, "project": 1},
    "mlp": {"up": 1, "down": 1},
    "router": {},
    "experts": {"up": 2, "down": 2},
    "head": {"logits": 0},
}


def tensor_parallel(branches: Sequence[Branch], model: Model, mesh: Mesh) -> list[Branch]:
    """The branches as rank `mesh.place["tp"]` has them."""
    ranks, rank, sequence = mesh.size("tp"), mesh.place["tp"], mesh.layout.sequence
    if ranks == 1:
        return list(branches)
    _check(model, mesh)
    found = []
    for whole in branches:
        kind = whole.kind
        suffix = "_feed" if kind == "mlp" else ""  # distinguishes the two branches of a block
        if kind == "router":
            found.append(_router(whole, Enter("enter", ranks, sequence)))
            continue
        branch = whole.with_weights(
            **{name: whole.weight(name).share(axis, rank, ranks) for name, axis in CUTS[kind].items()}
        )
        if sequence:  # every rank's part of the sequence contributes to the gradients of unsplit weights
            rest = [weight for weight in branch.weights if weight.name not in CUTS[kind]]
            branch = branch.with_weights(**{weight.name: replace(weight, shared=True) for weight in rest})
        if kind not in ("embedding", "experts"):
            branch = branch.with_point(0, Enter(f"enter{suffix}", ranks, sequence))
        if kind == "embedding":
            branch = branch.with_segment(0, _embed(rank * model.vocabulary // ranks))
        if kind == "head":
            logits, loss = cross_entropy(rank, ranks, rank * model.vocabulary // ranks)
            branch = replace(branch, segments=(branch.segments[0], logits, loss))
            branch = branch.with_point(1, Leave("totals", ranks, sequence=False))
        else:
            branch = branch.with_point(-1, Leave(f"leave{suffix}", ranks, sequence))
        if kind == "attention" and sequence and mesh.layout.cp == 1:
            branch = branch.with_point(1, Still("heads")).with_point(2, Still("tokens"))
        found.append(branch)
    return found


def _check(model: Model, mesh: Mesh) -> None:
    ranks = mesh.size("tp")
    for name in ("heads", "kv", "hidden"):
        if getattr(model, name) % ranks:
            raise UserError(f"[parallel] tp is {ranks}; it must divide [model] {name}, which is {getattr(model, name)}")
    length = model.context // (mesh.layout.cp * mesh.layout.slices)
    if mesh.layout.sequence and length % ranks:
        raise UserError(
            f"[parallel] tp is {ranks}; with sequence = true it must divide a rank's part of the context, {length}"
        )


def _router(whole: Branch, enter: Enter) -> Branch:
    """Segments: fork | route. The input has been gathered from all ranks; the residual stays."""
    (route,) = whole.segments

    def fork(context: ForwardContext, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.view_as(x), x

    def run(context: ForwardContext, entered: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        _, *decided = route(context, entered)
        return x, *decided

    weights = tuple(replace(weight, shared=True) for weight in whole.weights)
    return replace(whole, weights=weights, segments=(fork, run), points=(enter,))


def among(tokens: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Which tokens are among `count` from `first` on, and their positions there (arbitrary for the others)."""
    place = tokens - first
    inside = (place >= 0) & (place < count)
    return inside, place.clamp(0, count - 1)


def _embed(first: int) -> Run:
    def embed(context: ForwardContext, tokens: Tensor) -> tuple[Tensor]:
        table = context["tokens"]
        inside, place = among(tokens, first, len(table))
        return (F.embedding(place, table) * inside.unsqueeze(-1),)

    return embed


def cross_entropy(rank: int, ranks: int, first: int) -> tuple[Run, Run]:
    """The segments logits and loss. Between them (rows, length, 1 + ranks): target's logit, and each rank's total.
    `first`: of this rank's tokens."""

    def logits(context: ForwardContext, h: Tensor, targets: Tensor) -> tuple[Tensor]:
        made = context.linear(h, "logits").float()
        inside, place = among(targets, first, made.shape[-1])
        target = made.gather(-1, place.unsqueeze(-1)).squeeze(-1) * inside
        total = made.logsumexp(-1)
        others = torch.zeros_like(total)
        return (torch.stack((target, *(total if r == rank else others for r in range(ranks))), -1),)

    def loss(context: ForwardContext, totals: Tensor) -> tuple[Tensor]:
        return ((totals[..., 1:].logsumexp(-1) - totals[..., 0]).mean(),)

    return logits, loss

"""Chooses the experts of each token, and the order in which tokens travel.

The router is a linear layer with a softmax; a token's k most probable experts each get a copy of it (a *slot*), and
their answers are added with the k probabilities, normalized to one (GShard, section 2.2; Mixtral, section 2.1).
Nothing is dropped: an expert gets all rows for it (MegaBlocks, section 3), unless the model has a capacity. Then slots
beyond an expert's capacity belong to no expert, and their answer is zero: this changes the result.

`shares` of demand can replace a router: tokens go to the experts in these shares, regardless of content, so every rank
knows in advance how many rows will arrive. Emulated computation needs that.

Slots are sorted by expert, those of one expert by token. So the slots for one rank are adjacent, and on the rank that
receives them every (source, expert) is one slice of rows, equal in every layout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

Doubles = NDArray[np.float64]
_GOLDEN = (5**0.5 - 1) / 2  # its multiples fill [0, 1) evenly from any starting point


def choose(logits: Tensor, k: int, shares: Doubles | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """From logits [tokens, experts]: all probabilities, the k largest normalized [tokens, k], and whose they are.

    shares    of all choices by expert, which are made without looking at the token; None: the router chooses
    """
    probabilities = logits.float().softmax(-1)
    if shares is not None:
        chosen = torch.from_numpy(dealt(len(logits) * k, shares)).to(logits.device).view(-1, k)
        largest = probabilities.gather(-1, chosen)
    else:
        largest, chosen = probabilities.topk(k, -1)
    return probabilities, largest / largest.sum(-1, keepdim=True), chosen


def dealt(slots: int, shares: Doubles) -> NDArray[np.int64]:
    """Experts of so many slots; of any run of slots, each has about its share. Equal shares are served in turn."""
    if np.ptp(shares) == 0:
        return np.arange(slots, dtype=np.int64) % len(shares)
    places = (np.arange(slots) + 0.5) * _GOLDEN % 1.0
    return np.minimum(np.searchsorted(np.cumsum(shares), places), len(shares) - 1).astype(np.int64)


def capped(chosen: Tensor, experts: int, factor: float) -> Tensor:
    """The choices [tokens, k], of which an expert takes at most `factor` times its even share; the others get the
    number `experts`, for no expert. First choices of all tokens precede second ones, earlier tokens later ones.

    Lepikhin et al., GShard (ICLR 2021), algorithm 1; a group is a rank's microbatch, so that all layouts drop alike.
    """
    most = math.ceil(factor * chosen.numel() / experts)
    asked = chosen.t().flatten()  # in the order in which they are served
    order = asked.argsort(stable=True)
    counts = torch.bincount(asked, minlength=experts)
    first = (counts.cumsum(0) - counts)[asked[order]]
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device) - first)
    return asked.masked_fill(place >= most, experts).view(chosen.t().shape).t().contiguous()


def imbalance(probabilities: Tensor, chosen: Tensor) -> Tensor:
    """Load-balancing loss: experts * sum over experts of (share of slots * mean probability); 1 if balanced.

    Fedus, Zoph, Shazeer: Switch Transformers (2021), equations 4 to 6; a slot counts 1/k.
    """
    experts = probabilities.shape[-1]
    share = torch.bincount(chosen.flatten(), minlength=experts) / chosen.numel()
    return experts * (share * probabilities.mean(0)).sum()


class _AlsoLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, gradient.new_full((), ctx.weight), None


def also_loss(x: Tensor, loss: Tensor, weight: float) -> Tensor:
    """x itself; its backward also adds the gradient of `weight * loss`, anywhere in the model."""
    return _AlsoLoss.apply(x, loss, weight)  # type: ignore[no-any-return,no-untyped-call]


class _Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.inverse = inverse
        return x[order]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.inverse], None, None


def permute(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """x[order]; the gradient is also a gather, so no additions happen in an arbitrary order."""
    return _Permute.apply(x, order, inverse)  # type: ignore[no-any-return,no-untyped-call]


def slots(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens x [tokens, width] as rows sorted by expert [tokens * k, width], without those of no expert.

    Returns the rows, the slots' order (slot = token * k + choice), its inverse, and the number of rows of each expert.
    """
    order = chosen.flatten().argsort(stable=True)
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    copies = x.unsqueeze(1).expand(-1, chosen.shape[-1], -1).reshape(len(order), x.shape[-1])
    rows = permute(copies, order, inverse)
    counts = torch.bincount(chosen.flatten(), minlength=experts + 1)
    kept = len(rows) - int(counts[experts])
    return rows if kept == len(rows) else rows[:kept], order, inverse, counts[:experts]


def unite(rows: Tensor, weight: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """The experts' answers, in the order of `slots`, added up by token with the router's weights [tokens, k]."""
    if len(rows) < len(order):  # slots of no expert have no answer
        rows = torch.cat((rows, rows.new_zeros(len(order) - len(rows), rows.shape[1])))
    answers = permute(rows, inverse, order).view(*weight.shape, rows.shape[-1])
    return (answers * weight.unsqueeze(-1).to(answers.dtype)).sum(1)

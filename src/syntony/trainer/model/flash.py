"""Attention block by block: of the scores, only each query's log-sum-exp is kept.

    keys        piece 0   piece 1   piece 2
    queries 2     all       all     triangle      merged: ((e^l o + e^l' o') / (e^l + e^l'), log(e^l + e^l'))

    backward of a block    p = exp(scores - l) with the l of all blocks, so blocks are independent of each other

Dao et al., FlashAttention (NeurIPS 2022), section 3.1. On CPUs the blocks are torch's kernels; elsewhere they are
written out, and a block's scores exist while it is computed.

A sequence that goes through the pipeline in pieces (overlap/step/pipelines/sequence.py) keeps each piece's keys and
values for later ones, whose backwards come first and leave their gradients: a `Pieces` per sequence and attention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def block(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Pair:
    """Queries [rows, heads, n, depth] attend to keys and values [rows, heads, m, depth]; causal: n is m, and no query
    sees later ones. Returns the output, and each query's log-sum-exp [rows, heads, n, 1]."""
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, total = kernel(query, key, value, 0.0, causal)
        return output, total.unsqueeze(-1)
    scores = _scores(query, key, causal)
    total = scores.logsumexp(-1, keepdim=True)
    return (scores - total).exp().to(value.dtype) @ value, total


def merge(mine: Pair, other: Pair) -> Pair:
    """Combines the attention of the same queries to two blocks."""
    (output, total), (more, more_total) = mine, other
    both = torch.logaddexp(total, more_total)
    merged = output * (total - both).exp() + more * (more_total - both).exp()
    return merged.to(output.dtype), both


def block_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, total: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """A block's contribution to the gradients of queries, keys and values. `output`, `total`: of all blocks."""
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        found = kernel(gradient.contiguous(), query, key, value, output, total.squeeze(-1), 0.0, causal)
        return found[0], found[1], found[2]
    shares = (_scores(query, key, causal) - total).exp()
    inner = (gradient * output).sum(-1, keepdim=True)
    scores = (shares * (gradient @ value.mT - inner) / query.shape[-1] ** 0.5).to(query.dtype)
    return scores @ key, scores.mT @ query, shares.to(gradient.dtype).mT @ gradient


def _scores(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    scores: Tensor = (query @ key.mT).float() / query.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


@dataclass
class Pieces:
    """By number of the piece: its keys and values, and the gradients that later pieces have left for them."""

    held: dict[int, Pair] = field(default_factory=dict)
    gradients: dict[int, Pair] = field(default_factory=dict)

    def attend(self, number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The piece's attention to itself and all before it, [rows, heads, tokens of the piece, depth]."""
        return _Piece.apply(query, key, value, self, number)  # type: ignore[no-any-return,no-untyped-call]

    def add(self, number: int, more: Pair) -> None:
        """Leaves gradients of a piece's keys and values for its own backward."""
        there = self.gradients.get(number)
        self.gradients[number] = more if there is None else (there[0].add_(more[0]), there[1].add_(more[1]))


class _Piece(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, pieces: Pieces, number: int) -> Tensor:
        pieces.held[number] = key.detach(), value.detach()
        found = block(query, key, value, causal=True)
        for earlier in range(number):
            found = merge(found, block(query, *pieces.held[earlier], causal=False))
        ctx.save_for_backward(query, key, value, *found)
        ctx.pieces, ctx.number = pieces, number
        return found[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        query, key, value, output, total = ctx.saved_tensors
        pieces, number = ctx.pieces, ctx.number
        of_query, *own = block_gradients(gradients[0], query, key, value, output, total, causal=True)
        for earlier in range(number):
            k, v = pieces.held[earlier]
            more, *left = block_gradients(gradients[0], query, k, v, output, total, causal=False)
            of_query = of_query + more
            pieces.add(earlier, (left[0], left[1]))
        pieces.add(number, (own[0], own[1]))
        del pieces.held[number]
        return of_query, *pieces.gradients.pop(number), None, None

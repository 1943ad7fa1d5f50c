"""Ring attention: every rank keeps its queries; keys and values go round, a block at a time.

          rank 0        rank 1        rank 2
    q:    q0            q1            q2            stay
    step: kv0 ------->  kv1 ------->  kv2 --->      n - 1 times to the next rank; gradients come back the same way

What a block contributes is merged by online softmax: of each query row only its output and the logarithm of its sum
of exponentials are kept, and (o, l) + (o', l') = ((e^l o + e^l' o') / (e^l + e^l'), log(e^l + e^l')).

Causality would leave the first ranks without work. So a rank holds two pieces of the sequence, one from each end
("zigzag": of 2n pieces rank r has r and 2n-1-r). A piece attends to earlier pieces as a whole, to itself under the
triangle, and to later ones not at all: at every step every rank has the same work and there is nothing to mask.

Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers (2023), section 3; Brandon et al.: Striped Attention
(2023), section 3, for the balance; the pieces from both ends are Llama 3's (section 3.3.2).
"""

from __future__ import annotations

import torch
from torch import Tensor


def pieces(rank: int, ranks: int) -> tuple[int, ...]:
    """Which of the sequence's 2 * ranks equal pieces a rank holds; a single rank holds one piece, all of it."""
    return (0,) if ranks == 1 else (rank, 2 * ranks - 1 - rank)


def positions(rank: int, ranks: int, length: int) -> Tensor:
    """Places in a sequence of `length` tokens of those that a rank holds, int64 [length / ranks]."""
    held = pieces(rank, ranks)
    size = length // ranks // len(held)
    return torch.cat([torch.arange(piece * size, (piece + 1) * size) for piece in held])


def block(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention of queries [rows, heads, n, width] to keys and values [rows, heads, m, width].

    Returns the output, and of each query the logarithm of its sum of exponentials [rows, heads, n, 1].
    """
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    total = scores.logsumexp(-1, keepdim=True)
    return (scores - total).exp() @ value, total


def merge(output: Tensor, total: Tensor, other: Tensor, other_total: Tensor) -> tuple[Tensor, Tensor]:
    """Both blocks' attention from the attention of each."""
    both = torch.logaddexp(total, other_total)
    return output * (total - both).exp() + other * (other_total - both).exp(), both


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: tuple[int, ...],
    source: tuple[int, ...],
    before: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """One step of the ring: queries of the pieces `held` see keys and values of the pieces `source`.

    All [rows, heads, tokens, width]. `before` is what earlier steps have found; the first is of the rank's own block.
    """
    found = []
    keys, values = key.chunk(len(source), 2), value.chunk(len(source), 2)
    for i, (mine, part) in enumerate(zip(held, query.chunk(len(held), 2), strict=True)):
        so_far = None if before is None else (before[0].chunk(len(held), 2)[i], before[1].chunk(len(held), 2)[i])
        for theirs, k, v in zip(source, keys, values, strict=True):
            if theirs <= mine:
                seen = block(part, k, v, causal=theirs == mine)
                so_far = seen if so_far is None else merge(*so_far, *seen)
        assert so_far is not None  # a rank's own block comes first, and every piece sees itself
        found.append(so_far)
    return torch.cat([o for o, _ in found], 2), torch.cat([t for _, t in found], 2)

"""Ring attention: every rank keeps its queries; keys and values circulate, a block at a time.

          rank 0        rank 1        rank 2
    q:    q0            q1            q2            stay
    step: kv0 ------->  kv1 ------->  kv2 --->      n - 1 times to the next rank; gradients come back the same way

The tokens of a rank determine how much of its blocks is causal; for 4 ranks (t: triangle, #: all, .: nothing):

    plain       one piece each            t...  #t..  ##t.  ###t        the last rank works, the first one waits
    ring        a piece from each end     at every step half a block, all of it seen ("zigzag"): of 2n pieces rank r
                                          has r and 2n - 1 - r
    striped     every n-th token          tttt  tttt  tttt  tttt        at every step a triangle

Double rings (`inner` = 2: two hosts with two ranks each): keys and values circulate within a host, then all of its
ranks pass them to the next host at once, so only few steps wait for the network between hosts.

    step                       1            2            3
    whose keys     0 1 | 2 3    1 0 | 3 2    3 2 | 1 0    2 3 | 0 1        are at ranks 0 1 | 2 3

A step's result is merged with the previous ones (model/flash.py): o and l of each query. The backward of a block needs
o and l of all blocks, and the gradient of o. The steps pass these back in place of their own gradients: the gradient of
o carries the gradient of the last o, that of l the last l, and that of a third tensor, a mere placeholder, the last o.
Only steps read them.

Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers (2023), section 3; Brandon et al.: Striped Attention
(2023), section 3; the pieces from both ends are Llama 3's (section 3.3.2) and DistFlashAttn's idea of balance (2023);
double rings are LoongTrain's (Gu et al., arXiv 2406.18485).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from syntony.overlap.step.layout import Attention
from syntony.trainer.model.flash import block, block_gradients, merge


class Run(NamedTuple):
    """Positions begin, begin + step, .. of a sequence, `size` of them."""

    begin: int
    step: int
    size: int


class Seen(NamedTuple):
    """Queries of a rank that attend to keys of a source; causal: each only up to itself."""

    queries: slice
    keys: slice
    causal: bool


State = tuple[Tensor, Tensor, Tensor]
"""Output [rows, heads, tokens, depth], its total [.., 1], and what holds a place."""


def runs(form: Attention, rank: int, ranks: int, length: int) -> tuple[Run, ...]:
    """The tokens of a sequence that a rank holds, in its order."""
    if form == "plain" or ranks == 1:
        return (Run(rank * (length // ranks), 1, length // ranks),)
    if form == "striped":
        return (Run(rank, ranks, length // ranks),)
    size = length // ranks // 2
    return Run(rank * size, 1, size), Run((2 * ranks - 1 - rank) * size, 1, size)


def positions(form: Attention, rank: int, ranks: int, length: int) -> Tensor:
    """Positions in a sequence of `length` tokens of those that a rank holds, int64 [length / ranks]."""
    held = runs(form, rank, ranks, length)
    return torch.cat([torch.arange(begin, begin + step * size, step) for begin, step, size in held])


def source(rank: int, ranks: int, inner: int, step: int) -> int:
    """The source of the keys and values at a rank in a step. Every `inner`-th step passes them to the next ring."""
    (ring, place), rounds = divmod(rank, inner), step // inner
    return (ring - rounds) % (ranks // inner) * inner + (place - step + rounds) % inner


def seen(form: Attention, rank: int, source: int, tokens: int) -> tuple[Seen, ...]:
    """What a rank's queries see of the keys of a source with equally many tokens."""
    every, early, late = slice(0, tokens), slice(0, tokens // 2), slice(tokens // 2, tokens)
    if form == "striped":
        if source <= rank:
            return (Seen(every, every, causal=True),)
        return (Seen(slice(1, tokens), slice(0, tokens - 1), causal=True),) if tokens > 1 else ()
    if form == "plain":
        return (Seen(every, every, causal=source == rank),) if source <= rank else ()
    if source == rank:
        return Seen(early, early, True), Seen(late, early, False), Seen(late, late, True)
    return (Seen(every, early, False),) if source < rank else (Seen(late, every, False),)


def begin(query: Tensor) -> State:
    """The state before the first step: nothing is seen."""
    total = torch.full_like(query[..., :1], float("-inf"), dtype=torch.promote_types(query.dtype, torch.float32))
    return torch.zeros_like(query), total, query.new_zeros(()).expand(query.shape)


def attend(query: Tensor, key: Tensor, value: Tensor, what: tuple[Seen, ...], before: State, last: bool) -> State:
    """One step: extends the state by keys and values. `last`: the output is used as such, not by a step."""
    found: State = _Step.apply(query, key, value, *before, what, last)  # type: ignore[no-untyped-call]
    return found


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        total: Tensor,
        place: Tensor,
        what: tuple[Seen, ...],
        last: bool,
    ) -> State:
        output, total = output.clone(), total.clone()
        for queries, keys, causal in what:
            q, k, v = query[:, :, queries], key[:, :, keys], value[:, :, keys]
            mine, more = (output[:, :, queries], total[:, :, queries]), block(q, k, v, causal)
            output[:, :, queries], total[:, :, queries] = merge(mine, more)
        ctx.save_for_backward(query, key, value, *((output, total) if last else ()))
        ctx.what = what
        return output, total, place.view_as(place)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        query, key, value, *final = ctx.saved_tensors
        gradient, total, output = gradients
        if final:
            output, total = final
        of_query, of_key, of_value = (torch.zeros_like(tensor) for tensor in (query, key, value))
        for queries, keys, causal in ctx.what:
            rows = [tensor[:, :, queries] for tensor in (query, output, total, gradient)]
            q, o, t, g = rows
            found = block_gradients(g, q, key[:, :, keys], value[:, :, keys], o, t, causal)
            of_query[:, :, queries] += found[0]
            of_key[:, :, keys] += found[1]
            of_value[:, :, keys] += found[2]
        return of_query, of_key, of_value, gradient, total, output, None, None

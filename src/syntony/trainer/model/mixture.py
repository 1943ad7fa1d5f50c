"""A mixture of experts in place of an MLP, as two branches, since their gradients are summed over different ranks.

    router_3     norm and route                             the same weights on every rank
    experts_3    arrange | pack | feed | unite | add        the lane `ep` may distribute them

The router's output stays on the rank: (x, h, weight, chosen). An expert's rows are multiplied separately for every
source (the rank of their microbatch): these products are the same in every layout, bit for bit.

The first experts may be the branch's shadow: they are local to all ranks, and their rows do not travel. If all experts
are in the shadow, no rows travel, and they are computed as on one rank.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from syntony.overlap.step.demand import zipf
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import added, feed_forward, normed
from syntony.trainer.model.layer import SHADOW, Branch, ForwardContext, Weight
from syntony.trainer.model.places import Places
from syntony.trainer.model.router import also_loss, capped, choose, imbalance, slots, unite


def mixture(
    model: Model, index: int, even: bool = False, skew: float = 0.0, places: Places | None = None
) -> tuple[Branch, Branch]:
    """Router and experts of a block, whole. `even`: tokens go to the experts in turn, or (`skew`) by Zipf's law with
    this exponent, regardless of content. `places`: of the experts; None: they stay."""
    shares = zipf(model.experts, skew, index % model.experts)

    def route(context: ForwardContext, x: Tensor) -> tuple[Tensor, ...]:
        h, _ = normed(context, x, "gate_norm")
        probabilities, weight, chosen = choose(
            context.linear(h, "gate").flatten(0, 1), model.top, shares if even or context.even else None
        )
        weight = also_loss(weight, imbalance(probabilities, chosen), model.balance * context.share)
        chosen = capped(chosen, model.experts, model.capacity) if model.capacity else chosen
        return x, h, weight, chosen if places is None else places.found(chosen)

    gate = (Weight("gate", (model.experts, model.width), 0.02), Weight("gate_norm", (model.width,), 0))
    router = Branch("router", index, gate, (route,), ())

    up, down, feed = feed_forward(model)
    weights = tuple(replace(weight, shape=(model.experts, *weight.shape)) for weight in (up, down))

    def arrange(context: ForwardContext, x: Tensor, h: Tensor, weight: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        made, order, inverse, counts = slots(h.flatten(0, 1), chosen, model.experts)
        hot = _experts(context, SHADOW) % model.experts
        asked, counts = counts[:hot], counts[hot:]
        near = made.new_empty(0, model.width)
        if hot:
            near, made = torch.split(made, [int(asked.sum()), int(counts.sum())])
        return counts, counts, made, near, asked, order, inverse, weight, x

    def pack(context: ForwardContext, coming: Tensor, going: Tensor, made: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return made, going, coming, *rest

    def answered(context: ForwardContext, rows: Tensor, counts: Tensor, of: str = "") -> Tensor:
        local, parts = _experts(context, of), torch.split(rows, counts.tolist())
        found = [
            feed(context, part, at % local, at // local, of) if len(part) else part for at, part in enumerate(parts)
        ]
        return torch.cat(found) if found else rows

    def fed(
        context: ForwardContext,
        arrived: Tensor,
        going: Tensor,
        coming: Tensor,
        near: Tensor,
        asked: Tensor,
        *rest: Tensor,
    ) -> tuple[Tensor, ...]:
        where = "" if _experts(context, "") else SHADOW
        found = answered(context, arrived, coming, where), answered(context, near, asked, SHADOW)
        return found[0], going, coming, found[1], asked, *rest

    def join(
        context: ForwardContext, answers: Tensor, going: Tensor, coming: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        near, _, order, inverse, weight, x = rest
        every = [rows for rows in (near, answers) if len(rows)]
        y = unite(every[0] if len(every) == 1 else torch.cat(every), weight, order, inverse)
        return y.view(len(x), -1, y.shape[-1]), x

    return router, Branch("experts", index, weights, (arrange, pack, fed, join, added), (None,) * 4)


def _experts(context: ForwardContext, of: str) -> int:
    """The number of experts on the rank while it uses them."""
    return len(context.weights[f"{of}up"]) if f"{of}up" in context.weights else 0

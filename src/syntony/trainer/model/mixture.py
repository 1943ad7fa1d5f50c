"""A mixture of experts in place of an MLP, as two layers: what a rank has of both is summed over different ranks.

    router_3     norm and route                             the same weights on every rank
    experts_3    arrange | pack | feed | unite | add        the lane `ep` may spread them

What the router hands on stays on the rank: (x, h, weight, chosen). An expert's rows are multiplied apart for every
source (the rank whose microbatch they are of): these products are the same in every layout, bit for bit.

The first experts may be the layer's shadow: whoever asks for one of these is near it, and its rows do not travel.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from syntony.trainer.config import Model
from syntony.trainer.model.blocks import added, feed_forward, normed
from syntony.trainer.model.layer import SHADOW, Layer, Segment, Use, Weight
from syntony.trainer.model.router import also_loss, choose, imbalance, slots, unite


def mixture(model: Model, rows: int, index: int, even: bool = False) -> tuple[Layer, Layer]:
    """Router and experts of a block, whole, with all gaps empty. `even`: tokens go to the experts in turn."""
    tokens = rows * model.context

    def route(use: Use, x: Tensor) -> tuple[Tensor, ...]:
        h, _ = normed(use, x, "gate_norm")
        probabilities, weight, chosen = choose(use.linear(h, "gate").flatten(0, 1), model.top, even or use.even)
        return x, h, also_loss(weight, imbalance(probabilities, chosen), model.balance * use.share), chosen

    gate = (Weight("gate", (model.experts, model.width), 0.02), Weight("gate_norm", (model.width,), 0))
    router = Layer(f"router_{index}", gate, (Segment(route, 2.0 * tokens * model.width * model.experts),), ())

    up, down, feed, flops = feed_forward(model, rows)
    weights = tuple(replace(weight, shape=(model.experts, *weight.shape)) for weight in (up, down))

    def arrange(use: Use, x: Tensor, h: Tensor, weight: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        made, order, inverse, counts = slots(h.flatten(0, 1), chosen, model.experts)
        hot = _experts(use, SHADOW)
        asked, counts = counts[:hot], counts[hot:]
        near = made.new_empty(0, model.width)
        if hot:
            near, made = torch.split(made, [int(asked.sum()), int(counts.sum())])
        return counts, counts, made, near, asked, order, inverse, weight, x

    def pack(use: Use, coming: Tensor, going: Tensor, made: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return made, going, coming, *rest

    def answered(use: Use, rows: Tensor, counts: Tensor, of: str = "") -> Tensor:
        local, parts = _experts(use, of), torch.split(rows, counts.tolist())
        found = [feed(use, part, at % local, at // local, of) if len(part) else part for at, part in enumerate(parts)]
        return torch.cat(found) if found else rows

    def fed(
        use: Use, arrived: Tensor, going: Tensor, coming: Tensor, near: Tensor, asked: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        return answered(use, arrived, coming), going, coming, answered(use, near, asked, SHADOW), asked, *rest

    def join(use: Use, answers: Tensor, going: Tensor, coming: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        near, _, order, inverse, weight, x = rest
        every = [rows for rows in (near, answers) if len(rows)]
        y = unite(every[0] if len(every) == 1 else torch.cat(every), weight, order, inverse)
        return y.view(len(x), -1, y.shape[-1]), x

    segments = (Segment(arrange), Segment(pack), Segment(fed, flops * model.top), Segment(join), Segment(added))
    return router, Layer(f"experts_{index}", weights, segments, (None,) * 4, joined=True)


def _experts(use: Use, of: str) -> int:
    """How many the rank has while it uses them."""
    return len(use.weights[f"{of}up"]) if f"{of}up" in use.weights else 0

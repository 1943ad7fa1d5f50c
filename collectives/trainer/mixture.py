"""A mixture of experts in place of an MLP, as two layers: what a rank has of both is summed over different ranks.

    router_3     norm and route                             the same weights on every rank
    experts_3    arrange | pack | feed | unite | add        the lane `ep` may spread them

What the router hands on stays on the rank: (x, h, weight, chosen). An expert's rows are multiplied apart for every
source (the rank whose microbatch they are of): these products are the same in every layout, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from collectives.trainer.blocks import added, feed_forward, normed
from collectives.trainer.config import Model
from collectives.trainer.expert_parallel.router import also_loss, choose, imbalance, slots, unite
from collectives.trainer.layer import Layer, Segment, Use, Weight


def mixture(model: Model, rows: int, index: int, even: bool = False) -> tuple[Layer, Layer]:
    """Router and experts of a block, whole, with all gaps empty. `even`: tokens go to the experts in turn."""
    tokens = rows * model.context

    def route(use: Use, x: Tensor) -> tuple[Tensor, ...]:
        h, _ = normed(use, x, "gate_norm")
        probabilities, weight, chosen = choose(use.linear(h, "gate").flatten(0, 1), model.top, even)
        return x, h, also_loss(weight, imbalance(probabilities, chosen), model.balance * use.share), chosen

    gate = (Weight("gate", (model.experts, model.width), 0.02), Weight("gate_norm", (model.width,), 0))
    router = Layer(f"router_{index}", gate, (Segment(route, 2.0 * tokens * model.width * model.experts),), ())

    up, down, feed, flops = feed_forward(model, rows)
    weights = tuple(replace(weight, shape=(model.experts, *weight.shape)) for weight in (up, down))

    def arrange(use: Use, x: Tensor, h: Tensor, weight: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        made, order, inverse, counts = slots(h.flatten(0, 1), chosen, model.experts)
        return counts, counts, made, order, inverse, weight, x

    def pack(use: Use, coming: Tensor, going: Tensor, made: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return made, going, coming, *rest

    def fed(use: Use, arrived: Tensor, going: Tensor, coming: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        local = len(use.weights["up"])
        parts = torch.split(arrived, coming.tolist())
        answers = [feed(use, part, at % local, at // local) if len(part) else part for at, part in enumerate(parts)]
        return torch.cat(answers), going, coming, *rest

    def join(use: Use, answers: Tensor, going: Tensor, coming: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        order, inverse, weight, x = rest
        y = unite(answers, weight, order, inverse)
        return y.view(len(x), -1, y.shape[-1]), x

    segments = (Segment(arrange), Segment(pack), Segment(fed, flops * model.top), Segment(join), Segment(added))
    return router, Layer(f"experts_{index}", weights, segments, (None,) * 4, joined=True)

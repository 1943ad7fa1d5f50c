"""Hierarchical dispatch: a token is sent once to each box that has experts for it, and is passed on inside the box.

    rank of the token ──once per box──▶ rank at the same place in the box ──once per expert──▶ ranks of the experts
                      dispatch_far                                        dispatch
                      ◀──one sum per box──                                ◀──answers──
                      combine_far                                         combine

The relaying rank does for the rows that it receives what the token's rank does without boxes: it sorts them by expert,
and sums the answers with the router's weights, which travel beside the row. The choices of a token travel ahead
(`wanted`), as indices of the box's experts. An expert multiplies the rows of each source separately, in the order of
their tokens, as without boxes. With up to two experts per token, sums have the same bits; with more, they are taken
box by box.

Source: DeepSeek-AI, DeepSeek-V3 (2024), section 3.2.2 (which sends once per node, too), and DeepEP's training kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from syntony.trainer.config import Model
from syntony.trainer.model.blocks import feed_forward
from syntony.trainer.model.layer import Branch, ForwardContext
from syntony.trainer.model.router import slots, unite
from syntony.trainer.parallel.expert_parallel.rows import Rows, Sizes


def relayed(branch: Branch, model: Model, ranks: int, place: int, near: int) -> Branch:
    """The experts of a block on rank `place` of `ep`, with boxes of `near` neighbouring ranks."""
    local = model.experts // ranks
    relay = _Relay(model, ranks // near, near)
    points = (
        Sizes("sizes_far"), Rows("wanted", relay.far, False), Rows("dispatch_far", relay.far, False),
        Sizes(), Rows("dispatch", near, False), Rows("combine", near, True), Rows("combine_far", relay.far, True),
    )  # fmt: skip
    segments = (
        relay.arrange, relay.ask, relay.pack, relay.sort, relay.pass_on, relay.feed, relay.unite_near, relay.unite_far,
    )  # fmt: skip
    return replace(
        branch,
        weights=tuple(weight.block(0, place * local, local) for weight in branch.weights),
        segments=(*segments, branch.segments[-1]),
        points=(*points, branch.points[-1]),
        sources=ranks,
    )


@dataclass(frozen=True)
class _Relay:
    """The segments, for `far` boxes of `near` ranks."""

    model: Model
    far: int
    near: int

    @property
    def within(self) -> int:
        """Experts of a box."""
        return self.model.experts // self.far

    def arrange(
        self, context: ForwardContext, x: Tensor, h: Tensor, weight: Tensor, chosen: Tensor
    ) -> tuple[Tensor, ...]:
        """Rows by box (a token and its weights), and the choices of each row as indices of the box's experts."""
        boxes, within = torch.arange(self.far), self.within
        asked = (chosen.unsqueeze(1) // within == boxes.view(1, -1, 1)).any(-1)
        to = torch.where(asked, boxes, self.far)
        tokens = torch.cat((h.flatten(0, 1), weight.to(h.dtype)), 1)
        made, order, inverse, counts = slots(tokens, to, self.far)
        choices = chosen[order[: len(made)] // self.far] - (boxes * within).repeat_interleave(counts).unsqueeze(1)
        wanted = torch.where((choices >= 0) & (choices < within), choices, within)
        return counts, counts, wanted, made, order, inverse, x

    def ask(
        self, context: ForwardContext, coming: Tensor, going: Tensor, wanted: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        return wanted, going, coming, *rest

    def pack(
        self, context: ForwardContext, wanted: Tensor, going: Tensor, coming: Tensor, made: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        return made, going, coming, wanted, *rest

    def sort(
        self, context: ForwardContext, came: Tensor, going: Tensor, coming: Tensor, wanted: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        """The received rows by expert of this box; counts are by expert and source box."""
        h, weight = torch.split(came, [self.model.width, self.model.top], 1)
        made, order, inverse, _ = slots(h, wanted, self.within)
        origin = torch.arange(self.far).repeat_interleave(coming).unsqueeze(1)
        of = torch.bincount((wanted * self.far + origin).flatten(), minlength=(self.within + 1) * self.far)
        counts = of[: self.within * self.far]
        return counts, counts, made, order, inverse, weight, going, coming, *rest

    def pass_on(
        self, context: ForwardContext, coming: Tensor, going: Tensor, made: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        return made, going, coming, *rest

    def feed(
        self, context: ForwardContext, arrived: Tensor, going: Tensor, coming: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        run, far = feed_forward(self.model)[2], self.far
        local = self.within // self.near
        found = []
        for at, part in enumerate(torch.split(arrived, coming.tolist())):
            relay, expert, box = at // far // local, at // far % local, at % far
            found.append(run(context, part, expert, box * self.near + relay) if len(part) else part)
        return torch.cat(found), going, coming, *rest

    def unite_near(
        self, context: ForwardContext, answers: Tensor, going: Tensor, coming: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        order, inverse, weight, *far = rest
        return unite(answers, weight, order, inverse), *far

    def unite_far(
        self, context: ForwardContext, sums: Tensor, going: Tensor, coming: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        order, inverse, x = rest
        y = unite(sums, sums.new_ones(len(order) // self.far, self.far), order, inverse)
        return y.view(len(x), -1, y.shape[-1]), x

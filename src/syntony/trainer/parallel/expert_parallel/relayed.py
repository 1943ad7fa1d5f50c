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

With `dedup`, ranks of `tp` send the columns of which they are in charge, as without boxes (split.py): all ways carry
1/tp of a row, until `widen` gathers them for the expert, and after `narrow`.

Source: DeepSeek-AI, DeepSeek-V3 (2024), section 3.2.2 (which sends once per node, too), and DeepEP's training kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.trainer.config import Model
from syntony.trainer.model.blocks import feed_forward
from syntony.trainer.model.layer import Branch, ForwardContext, Transfer
from syntony.trainer.model.router import slots, unite
from syntony.trainer.parallel.expert_parallel.rows import Rows, Sizes, handed_on
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.sums import Enter, Leave


def relayed(branch: Branch, model: Model, mesh: Mesh) -> Branch:
    """The experts of a block on rank `mesh.place["ep"]`, with boxes of `relay` neighbouring ranks."""
    ranks, place, near = mesh.size("ep"), mesh.place["ep"], mesh.layout.relay
    local, tp, column = model.experts // ranks, mesh.size("tp"), mesh.place["tp"]
    dedup = mesh.layout.dedup
    columns = slice(model.width * column // tp, model.width * (column + 1) // tp) if dedup else slice(0, model.width)
    relay = _Relay(model, ranks // near, near, columns)
    widen, narrow = Enter("widen", tp, sequence=True), Leave("narrow", tp, sequence=True)
    points: tuple[Transfer, ...] = (
        Sizes("sizes_far"), Rows("wanted", relay.far, False), Rows("dispatch_far", relay.far, False),
        Sizes(), Rows("dispatch", near, False), *((widen, narrow) if dedup else ()), Rows("combine", near, True),
        Rows("combine_far", relay.far, True),
    )  # fmt: skip
    still = (handed_on,) if dedup else ()
    segments = (
        relay.arrange, relay.ask, relay.pack, relay.sort, relay.pass_on, *still, relay.feed, *still, relay.unite_near,
        relay.unite_far,
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
    """The segments, for `far` boxes of `near` ranks. `columns` of rows travel."""

    model: Model
    far: int
    near: int
    columns: slice

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
        tokens = torch.cat((h.flatten(0, 1)[:, self.columns], weight.to(h.dtype)), 1)
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
        h, weight = torch.split(came, [self.columns.stop - self.columns.start, self.model.top], 1)
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
        y = F.pad(y, (self.columns.start, self.model.width - self.columns.stop))
        return y.view(len(x), -1, y.shape[-1]), x

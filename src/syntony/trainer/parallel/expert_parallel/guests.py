"""Guests: experts in high demand are sent to the ranks that request them, ahead of the rows for all other experts.

    to rank q    [ weights of guests that q requests | rows for experts of q ]       dispatch; back: gradients of both
    from q       [ answers ]                                                         combine

The guests follow from the counts of every microbatch, of all ranks, by one cost model (overlap/step/demand.py), so all
ranks choose alike. An expert's home, its gradients and its optimizer do not change: nothing is copied when the choice
changes. A guest's rows are multiplied with the same weights in the same products. Its gradients return to its home
separately by rank, and are added there in the order of the undivided step, to the same bits.

If a dispatch is cut in parts, a part is what is exchanged with a group of ranks (the own group is in the first part,
whose rows are not sent): FasterMoE's group-wise exchange. Guests come with the part of their home, and the rows that
stay for them are computed then, while the next part is on its way.

He et al., FasterMoE (PPoPP 2022), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntony.overlap.step.demand import Visits
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import added, feed_forward
from syntony.trainer.model.crossing import Tensors
from syntony.trainer.model.layer import Branch, ForwardContext, Join, Move, Product, Transfer, Weight
from syntony.trainer.model.router import slots, unite
from syntony.trainer.parallel.expert_parallel.rows import Rows


@dataclass(frozen=True)
class Counts(Transfer):
    """All ranks' rows for all experts, to all."""

    ranks: int
    name: str = "sizes"

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return Move(x, x.new_empty(self.ranks * len(x)))

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        raise AssertionError("numbers of rows have no gradient")


@dataclass(frozen=True)
class Exchange(Rows):
    """Rows, and on their way out the weights of guests. `kept`: going, coming, near, asked, lent, borrowed; the last
    two by rank and its expert, 1 for a guest.

    place     of this rank
    height    of an expert's weights, in rows
    """

    place: int
    height: int

    def cut(self, x: Tensor, kept: tuple[Tensor, ...], index: int, count: int) -> Tensor:
        going, lent = (self._shares(kept[at], count)[index] for at in (0, 4))
        pieces = torch.split(x, self._sizes(kept[0], kept[4]))
        wanted = zip(pieces, self._sizes(going, lent), strict=True)
        return torch.cat([piece if size else piece[:0] for piece, size in wanted])

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        pieces = [torch.split(x, self._sizes(part[0], part[4])) for x, part in zip(parts, kept, strict=True)]
        return torch.cat([piece for of_rank in zip(*pieces, strict=True) for piece in of_rank])

    def cut_kept(self, kept: Tensors, index: int, count: int) -> Tensors:
        return self.cut_rest(kept, kept, index, count)

    def join_kept(self, parts: Sequence[Tensors]) -> Tensors:
        return self.join_rest(parts, parts)

    def cut_rest(self, rest: Tensors, kept: Tensors, index: int, count: int) -> Tensors:
        _, _, near, *others = rest
        by_rank = [self._shares(rest[at], count, way)[index] for at, way in ((0, 1), (1, -1), (3, -1), (4, 1), (5, -1))]
        here = self._shares(kept[3], count, -1)[index].tolist()
        pieces = zip(torch.split(near, kept[3].tolist()), here, strict=True)
        mine = torch.cat([near[:0], *(piece for piece, size in pieces if size)])
        return *by_rank[:2], mine, *by_rank[2:], *others[3:]

    def join_rest(self, parts: Sequence[Tensors], kept: Sequence[Tensors]) -> Tensors:
        pieces = [torch.split(part[2], of[3].tolist()) for part, of in zip(parts, kept, strict=True)]
        near = torch.cat([piece for of_expert in zip(*pieces, strict=True) for piece in of_expert])
        going, coming, asked, lent, borrowed = (
            torch.stack([part[at] for part in parts]).sum(0) for at in (0, 1, 3, 4, 5)
        )
        return going, coming, near, asked, lent, borrowed, *parts[0][6:]

    def _shares(self, numbers: Tensor, count: int, way: int = 1) -> Tensor:
        """Of part p of n: what has to do with the ranks from p / n of the way round on, in one direction."""
        return (numbers.view(1, self.ranks, -1) * _met(self.ranks, self.place, count, way)).view(count, -1)

    def _sizes(self, rows: Tensor, guests: Tensor) -> list[int]:
        """Of what goes to each rank: weights, rows, weights, rows, .."""
        weights = torch.zeros(self.ranks, dtype=rows.dtype) if self.back else guests.view(self.ranks, -1).sum(1)
        return torch.stack((self.height * weights, rows.view(self.ranks, -1).sum(1)), 1).flatten().tolist()

    def _moved(self, x: Tensor, kept: tuple[Tensor, ...], back: bool) -> Move:
        sizes = [self._sizes(kept[0], kept[4]), self._sizes(kept[1], kept[5])]
        going, coming = ([sum(pair) for pair in zip(each[::2], each[1::2], strict=True)] for each in sizes)
        if back:
            going, coming = coming, going
        return Move(x.contiguous(), x.new_empty(sum(coming), x.shape[1]), input_sizes=going, output_sizes=coming)


@cache
def _met(ranks: int, place: int, count: int, way: int) -> Tensor:
    """1 for the ranks that a part has to do with, int64 [part, rank, 1]."""
    offsets = (torch.arange(ranks) - place) * way % ranks
    return (offsets // (ranks // count) == torch.arange(count).unsqueeze(1)).long().unsqueeze(2)


def hosting(branch: Branch, model: Model, ranks: int, place: int, visits: Visits, even: bool) -> Branch:
    """A block's experts as rank `place` of `ep` has them, with guests. `even`: all ranks ask alike, and know it."""
    local = model.experts // ranks
    weights = tuple(weight.block(0, place * local, local) for weight in branch.weights)
    up, down = weights
    height = sum(weight.elements for weight in weights) // local // model.width
    ways = [Exchange(name, ranks, back, place, height) for name, back in (("dispatch", False), ("combine", True))]
    points: tuple[Transfer | None, ...] = (None if even else Counts(ranks), *ways, branch.points[-1])
    feed = _Feed(model, local, ranks, (up, down))

    def arrange(context: ForwardContext, x: Tensor, h: Tensor, weight: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        made, order, inverse, counts = slots(h.flatten(0, 1), chosen, model.experts)
        return counts.repeat(ranks) if even else counts, made, order, inverse, weight, x

    def pack(context: ForwardContext, counts: Tensor, made: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        every = counts.view(ranks, model.experts)
        guests = torch.zeros(model.experts, dtype=torch.int64)
        guests[torch.from_numpy(visits.guests(every.cpu().double().numpy()))] = 1
        here, mine = every[place], slice(place * local, (place + 1) * local)
        going, coming = here * (1 - guests), (every * (1 - guests))[:, mine].flatten()
        asked = here * guests
        lent = ((every[:, mine] > 0) * guests[mine]).flatten()
        borrowed = (asked > 0) * guests
        pieces = torch.split(made, here.tolist())
        near = torch.cat([piece if guest else piece[:0] for piece, guest in zip(pieces, guests.tolist(), strict=True)])
        stays = guests.view(ranks, -1).tolist()
        to = [pieces[q * local + e] for q in range(ranks) for e in range(local) if not stays[q][e]]
        far = torch.split(torch.cat([made[:0], *to]), going.view(ranks, -1).sum(1).tolist())
        sent = lent.view(ranks, -1)
        given = _Lend.apply(made, context, [(q, e) for q in range(ranks) for e in range(local) if sent[q, e]], weights)  # type: ignore[no-untyped-call]
        weighty = torch.split(given.view(-1, model.width), (height * sent.sum(1)).tolist())
        x = torch.cat([piece for pair in zip(weighty, far, strict=True) for piece in pair])
        return x, going, coming, near, asked, lent, borrowed, *rest

    def join(context: ForwardContext, answers: Tensor, going: Tensor, coming: Tensor, *rest: Tensor) -> Any:
        near, asked, _, _, order, inverse, weight, x = rest
        both = zip(torch.split(near, asked.tolist()), torch.split(answers, going.tolist()), strict=True)
        y = unite(torch.cat([rows for pair in both for rows in pair]), weight, order, inverse)
        return y.view(len(x), -1, y.shape[-1]), x

    return replace(branch, weights=weights, segments=(arrange, pack, feed, join, added), points=points, sources=ranks)


@dataclass(frozen=True)
class _Feed:
    """The segment that computes answers: of rows that have come, and with guests of those that have stayed."""

    model: Model
    local: int
    ranks: int
    weights: tuple[Weight, ...]

    def rows(self, arrived: Tensor, going: Tensor, coming: Tensor, near: Tensor, *rest: Tensor) -> int:
        """How many it answers."""
        return int(coming.sum()) + len(near)

    def __call__(
        self, context: ForwardContext, arrived: Tensor, going: Tensor, coming: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        near, asked, lent, borrowed, *others = rest
        feed = feed_forward(self.model)[2]
        rows, came = coming.view(self.ranks, -1).sum(1), borrowed.view(self.ranks, -1).sum(1)
        sizes = [weight.elements // self.local // self.model.width for weight in self.weights]
        pieces = torch.split(arrived, torch.stack((sum(sizes) * came, rows), 1).flatten().tolist())
        parts = torch.split(torch.cat(pieces[1::2]), coming.tolist())
        found = [
            feed(context, part, at % self.local, at // self.local) if len(part) else part
            for at, part in enumerate(parts)
        ]
        guests = iter(torch.split(torch.cat(pieces[::2]), sizes * int(came.sum())))
        answers, stayed = [near[:0]], torch.split(near, asked.tolist())
        for expert in borrowed.nonzero().flatten().tolist():
            matrices = {weight.name: next(guests).reshape(-1, weight.shape[-1]) for weight in self.weights}
            answers.append(feed(_Guest({}, matrices=matrices), stayed[expert]))
        return torch.cat(found), going, coming, torch.cat(answers), asked, lent, borrowed, *others


@dataclass
class _Guest(ForwardContext):
    """Where the weights of a guest are found: they are tensors like others, with gradients that travel."""

    matrices: dict[str, Tensor] = field(default_factory=dict)

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        return _Times.apply(x, self.matrices[name])  # type: ignore[no-any-return,no-untyped-call]


class _Times(torch.autograd.Function):
    """y = x W^T, with the products of a layer's own matrices (model/layer.py)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return torch.nn.functional.linear(x, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, matrix = ctx.saved_tensors
        return dy @ matrix, torch.mm(dy.t(), x)


class _Lend(torch.autograd.Function):
    """Weights of (rank that asks, own expert) in turn, as one flat tensor; their gradients come back to the layer.

    start    any tensor that has a gradient
    """

    @staticmethod
    def forward(
        ctx: Any, start: Tensor, context: ForwardContext, sent: Sequence[tuple[int, int]], weights: Sequence[Weight]
    ) -> Tensor:
        ctx.context, ctx.sent, ctx.weights = context, sent, weights
        found = [context.matrix(weight.name, expert).flatten() for _, expert in sent for weight in weights]
        return torch.cat([start.new_empty(0), *found])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        sizes = [weight.elements // weight.shape[0] for weight in ctx.weights]
        parts = iter(torch.split(gradient, sizes * len(ctx.sent)))
        for source, expert in ctx.sent:
            for weight in ctx.weights:
                part = next(parts)
                ctx.context.made(_Made(weight.name, part, part, expert, source))
        return (None,) * 4


class _Made(Product):
    """A gradient that was computed where the rows are: `x`."""

    def with_rows_of(self, every: Sequence[Product], join: Join) -> Product:
        raise AssertionError("guests are not cut")

    def into(self, gradient: Tensor) -> None:
        place = gradient if self.block is None else gradient[self.block]
        place.copy_(self.x.view_as(place))

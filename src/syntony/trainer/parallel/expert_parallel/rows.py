"""The rows that a block's experts exchange with the ranks of their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import torch
from torch import Tensor

from syntony.trainer.model.layer import ForwardContext, Move, Transfer


@dataclass(frozen=True)
class Sizes(Transfer):
    """To every rank: how many rows its experts will get."""

    name: str = "sizes"

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return Move(x, torch.empty_like(x))

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        raise AssertionError("numbers of rows have no gradient")


@dataclass(frozen=True)
class Rows(Transfer):
    """Rows to the ranks of their experts, or (`back`) the answers to where the rows came from. `kept`: going,
    coming."""

    name: str
    ranks: int
    back: bool

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._moved(x, kept, self.back)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._moved(gradient, kept, not self.back)

    def backward_needs(self, kept: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return kept

    def cut(self, x: Tensor, kept: tuple[Tensor, ...], index: int, count: int) -> Tensor:
        """Part `index` of `count`, on the side of those whose rows they are."""
        return torch.cat(torch.split(x, _parted(tuple(kept[0].tolist()), self.ranks, count)[1])[index::count])

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        pieces = [torch.split(x, part[0].tolist()) for x, part in zip(parts, kept, strict=True)]
        return torch.cat([piece for of_expert in zip(*pieces, strict=True) for piece in of_expert])

    def cut_kept(self, kept: tuple[Tensor, ...], index: int, count: int) -> tuple[Tensor, ...]:
        """Of other parts there are no rows. All the rest goes with every part."""
        going, coming, near, asked, *rest = kept
        mine = [_parted(tuple(numbers.tolist()), self.ranks, count)[0][index] for numbers in (going, coming)]
        return *mine, *((near, asked) if index == 0 else (near[:0], torch.zeros_like(asked))), *rest

    def join_kept(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        going, coming = (torch.stack(numbers).sum(0) for numbers in list(zip(*parts, strict=True))[:2])
        return going, coming, *parts[0][2:]

    def _moved(self, x: Tensor, kept: tuple[Tensor, ...], back: bool) -> Move:
        going, coming = (counts.view(self.ranks, -1).sum(1).tolist() for counts in kept[:2])
        if back:
            going, coming = coming, going
        return Move(x.contiguous(), x.new_empty(sum(coming), x.shape[1]), input_sizes=going, output_sizes=coming)


@lru_cache(maxsize=1024)  # each part asks for the same, when it is cut and when it is joined
def _parted(numbers: tuple[int, ...], ranks: int, count: int) -> tuple[tuple[Tensor, ...], list[int]]:
    """Of so many rows by rank and its expert those of each part, int64 [rank x expert]; and of each expert in turn
    those of all parts. Parts are groups of a rank's experts, and where these are too few, equal pieces of every
    expert's rows (of its capacity)."""
    groups = gcd(count, len(numbers) // ranks)
    pieces = count // groups
    cuts = torch.tensor(numbers) * torch.arange(pieces + 1).unsqueeze(1) // pieces
    of = cuts.diff(dim=0).view(1, pieces, ranks, groups, -1)
    mine = torch.eye(groups, dtype=torch.int64).view(groups, 1, 1, groups, 1)
    parts = (of * mine).view(count, -1)
    return tuple(parts), parts.t().flatten().tolist()


def handed_on(context: ForwardContext, x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """A segment between two exchanges."""
    return x.view_as(x), *rest

"""Expert parallelism: the experts of a block are spread over the ranks of `ep`, and rows travel to them and back.

    experts    arrange | pack | feed | unite | add
                       |      |      `- combine    answers go back
                       |      `- dispatch          rows go to the ranks of their experts: as many as were chosen
                       `- sizes                    how many these will be; where all know that (`even`), nothing

Or experts come to the rows: all of them (Liu et al., Janus, 2023), or the first ones, which are taken to be in demand
(He et al., FasterMoE, 2022). They are the layer's shadow: every rank has it while it uses it, and rows for it stay.
The same segments compute the same products then, as on one rank. In parts, the first one has the rows that stay; where
parts are pieces of experts' rows, gradients of weights are products of all the pieces together (leaf.py).

Lepikhin et al., GShard (2020), section 3; nothing is dropped (Gale et al., MegaBlocks, 2022, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import torch
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, ForwardContext, Move, Run, Transfer
from syntony.trainer.parallel.mesh import Mesh


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

    def cut(self, x: Tensor, kept: tuple[Tensor, ...], index: int, count: int) -> Tensor:
        """Part `index` of `count`, on the side of those whose rows they are."""
        return torch.cat(torch.split(x, self._shares(kept[0], count).t().flatten().tolist())[index::count])

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        pieces = [torch.split(x, part[0].tolist()) for x, part in zip(parts, kept, strict=True)]
        return torch.cat([piece for of_expert in zip(*pieces, strict=True) for piece in of_expert])

    def cut_kept(self, kept: tuple[Tensor, ...], index: int, count: int) -> tuple[Tensor, ...]:
        """Of other parts there are no rows. All the rest goes with every part."""
        going, coming, near, asked, *rest = kept
        mine = [self._shares(numbers, count)[index] for numbers in (going, coming)]
        return *mine, *((near, asked) if index == 0 else (near[:0], torch.zeros_like(asked))), *rest

    def join_kept(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        going, coming = (torch.stack(numbers).sum(0) for numbers in list(zip(*parts, strict=True))[:2])
        return going, coming, *parts[0][2:]

    def _shares(self, numbers: Tensor, count: int) -> Tensor:
        """Of so many rows by rank and its expert those of each part, int64 [part, rank x expert]: groups of a rank's
        experts, and where these are too few, equal pieces of every expert's rows (of its capacity)."""
        local = len(numbers) // self.ranks
        groups = gcd(count, local)
        pieces = count // groups
        cuts = numbers * torch.arange(pieces + 1).unsqueeze(1) // pieces
        of = cuts.diff(dim=0).view(1, pieces, self.ranks, groups, -1)
        mine = torch.eye(groups, dtype=torch.int64).view(groups, 1, 1, groups, 1)
        return (of * mine).view(count, -1)

    def _moved(self, x: Tensor, kept: tuple[Tensor, ...], back: bool) -> Move:
        going, coming = (counts.view(self.ranks, -1).sum(1).tolist() for counts in kept[:2])
        if back:
            going, coming = coming, going
        return Move(x.contiguous(), x.new_empty(sum(coming), x.shape[1]), input_sizes=going, output_sizes=coming)


@dataclass(frozen=True)
class Still(Transfer):
    """Nothing travels, where otherwise `name` would."""

    name: str


def expert_parallel(branches: list[Branch], model: Model, mesh: Mesh, even: bool = False, hot: int = 0) -> list[Branch]:
    """The branches as rank `mesh.place["ep"]` has them: its share of every block's experts.

    even    every rank's tokens go to the experts alike
    hot     so many experts of every block, the first, come to the rows; the others are spread
    """
    ranks, rank = mesh.size("ep"), mesh.place["ep"]
    if ranks == 1:
        return branches
    if model.experts % ranks:
        raise UserError(f"[parallel] ep is {ranks}; it must divide [model] experts, which is {model.experts}")
    spread = model.experts - hot
    if spread < 0 or spread % ranks:
        raise UserError(
            f"the plan has {hot} of {model.experts} experts come to the tokens; of the others each of ep={ranks} ranks "
            "must keep as many"
        )
    local = spread // ranks
    points: tuple[Transfer | None, ...] = (None if even else Still("sizes"), Still("dispatch"), Still("combine"))
    if spread:
        points = (None if even else Sizes(), Rows("dispatch", ranks, False), Rows("combine", ranks, True))

    def mine(branch: Branch) -> Branch:
        near = tuple(replace(weight.block(0, 0, hot), branch=branch.name) for weight in branch.weights)
        weights = tuple(weight.block(0, hot + rank * local, local) for weight in branch.weights)
        if even and spread:
            branch = branch.with_segment(0, _known(branch.segments[0], ranks, rank))
        branch = replace(branch, weights=weights if spread else (), shadow=near if hot else (), sources=ranks)
        return replace(branch, points=(*points, branch.points[-1]))

    return [mine(branch) if branch.kind == "experts" else branch for branch in branches]


def _known(arrange: Run, ranks: int, rank: int) -> Run:
    """What `sizes` would bring, without it: all ranks send this one as many rows as it sends itself."""

    def run(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        counts, *rest = arrange(context, *tensors)
        return counts.view(ranks, -1)[rank].repeat(ranks), *rest

    return run

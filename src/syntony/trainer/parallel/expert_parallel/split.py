"""Expert parallelism: the experts of a block are spread over the ranks of `ep`, and rows travel to them and back.

    experts    arrange | pack | feed | unite | add
                       |      |      `- combine    answers go back
                       |      `- dispatch          rows go to the ranks of their experts: as many as were chosen
                       `- sizes                    how many these will be; where all know that (`even`), nothing

Or experts come to the rows: all of them (Liu et al., Janus, 2023), or the first ones, which are taken to be in demand
(He et al., FasterMoE, 2022). They are the layer's shadow: every rank has it while it uses it, and rows for it stay.
The same segments compute the same products then, as on one rank. In parts, the first one has the rows that stay.

Lepikhin et al., GShard (2020), section 3; nothing is dropped (Gale et al., MegaBlocks, 2022, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        """The rows of every rank's experts number `index` of `count`; on the side of those whose rows they are."""
        sizes = self._parted(kept[0], count).sum(2).flatten().tolist()
        return torch.cat(torch.split(x, sizes)[index::count])

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        sizes = [part[0].view(self.ranks, -1).sum(1).tolist() for part in kept]
        pieces = [torch.split(x, each) for x, each in zip(parts, sizes, strict=True)]
        return torch.cat([piece for of_rank in zip(*pieces, strict=True) for piece in of_rank])

    def cut_kept(self, kept: tuple[Tensor, ...], index: int, count: int) -> tuple[Tensor, ...]:
        """Of the other experts there are no rows. All the rest goes with every part."""
        mine = []
        for numbers in kept[:2]:
            part = torch.zeros_like(numbers)
            self._parted(part, count)[:, index] = self._parted(numbers, count)[:, index]
            mine.append(part)
        near, asked, *rest = kept[2:]
        return *mine, *((near, asked) if index == 0 else (near[:0], torch.zeros_like(asked))), *rest

    def join_kept(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        going, coming = (torch.stack(numbers).sum(0) for numbers in list(zip(*parts, strict=True))[:2])
        return going, coming, *parts[0][2:]

    def _parted(self, numbers: Tensor, count: int) -> Tensor:
        """Of (rank, expert of that rank), as (rank, part, expert of that part)."""
        local = len(numbers) // self.ranks
        if local % count:
            raise UserError(f"the plan cuts the {local} experts of a rank in {count} parts; these must be equal")
        return numbers.view(self.ranks, count, -1)

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

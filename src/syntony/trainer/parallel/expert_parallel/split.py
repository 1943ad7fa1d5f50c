"""Expert parallelism: the experts of a block are spread over the ranks of `ep`, and rows travel to them and back.

    experts    arrange | pack | feed | unite | add
                       |      |      `- combine    answers go back
                       |      `- dispatch          rows go to the ranks of their experts: as many as were chosen
                       `- sizes                    how many these will be; where all know that (`even`), nothing

With `dedup`, ranks of `tp`, which have the same rows, send the columns of which they are in charge:

    pack ---dispatch---> (columns) ---widen---> feed ---narrow---> (columns) ---combine---> unite
         1/tp of a row             gather          sum, scatter             1/tp of a row

and hand the sum of that many columns on, with zeros for all others. Singh et al., A Hybrid Tensor-Expert-Data
Parallelism Approach (ICS 2023), section on duplicate token dropping; they drop tokens, which is as much.

Or experts come to the rows: those that a microbatch's counts speak for (guests.py), or always all of them (Liu et al.,
Janus, 2023), or the first ones. These are the layer's shadow: every rank has it while it uses it, and rows for it stay.
The same segments compute the same products then, as on one rank. In parts, the first one has the rows that stay; where
parts are pieces of experts' rows, gradients of weights are products of all the pieces together (leaf.py).

Lepikhin et al., GShard (2020), section 3; nothing is dropped (Gale et al., MegaBlocks, 2022, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.overlap.step.demand import Visits
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, ForwardContext, Run, Transfer
from syntony.trainer.parallel.expert_parallel.guests import hosting
from syntony.trainer.parallel.expert_parallel.relayed import relayed
from syntony.trainer.parallel.expert_parallel.rows import Rows, Sizes, handed_on
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.tensor_parallel.sums import Enter, Leave


@dataclass(frozen=True)
class Still(Transfer):
    """Nothing travels, where otherwise `name` would."""

    name: str


def expert_parallel(
    branches: list[Branch],
    model: Model,
    mesh: Mesh,
    even: bool = False,
    hot: int = 0,
    visits: Visits | None = None,
) -> list[Branch]:
    """The branches as rank `mesh.place["ep"]` has them: its share of every block's experts.

    even    every rank's tokens go to the experts alike
    hot     so many experts of every block, the first, come to the rows; the others are spread
    visits  experts in demand are guests; None: there are none
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
    ways = (Rows("dispatch", ranks if spread else 1, False), Rows("combine", ranks if spread else 1, True))
    points: tuple[Transfer | None, ...] = (None if even else Sizes() if spread else Still("sizes"), *ways)

    def mine(branch: Branch) -> Branch:
        if mesh.layout.relay > 1:
            return relayed(branch, model, mesh)
        if visits is not None:
            return hosting(branch, model, ranks, rank, visits, even)
        near = tuple(replace(weight.block(0, 0, hot), branch=branch.name) for weight in branch.weights)
        weights = tuple(weight.block(0, hot + rank * local, local) for weight in branch.weights)
        if even and spread:
            branch = branch.with_segment(0, _known(branch.segments[0], ranks, rank))
        branch = replace(branch, weights=weights if spread else (), shadow=near if hot else (), sources=ranks)
        branch = replace(branch, points=(*points, branch.points[-1]))
        return _once(branch, mesh, model.width, spread > 0) if mesh.layout.dedup else branch

    return [mine(branch) if branch.kind == "experts" else branch for branch in branches]


def _known(arrange: Run, ranks: int, rank: int) -> Run:
    """What `sizes` would bring, without it: all ranks send this one as many rows as it sends itself."""

    def run(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        counts, *rest = arrange(context, *tensors)
        return counts.view(ranks, -1)[rank].repeat(ranks), *rest

    return run


def _once(branch: Branch, mesh: Mesh, width: int, travels: bool) -> Branch:
    """Of rows that travel, if any do, this rank of `tp` sends its part of the width."""
    ranks, rank = mesh.size("tp"), mesh.place["tp"]
    arrange, pack, feed, unite, add = branch.segments
    sizes, dispatch, combine, leave = branch.points
    first, past = (width * place // ranks for place in (rank, rank + 1))

    def cut(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, ...]:
        x, *rest = pack(context, *tensors)
        return x[:, first:past], *rest

    def united(context: ForwardContext, answers: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return unite(context, F.pad(answers, (first, width - past)), *rest)

    widen, narrow = Enter("widen", ranks, sequence=True), Leave("narrow", ranks, sequence=True)
    return replace(
        branch,
        segments=(arrange, cut if travels else pack, handed_on, feed, handed_on, united if travels else unite, add),
        points=(sizes, dispatch, widen, narrow, combine, leave),
    )

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
from syntony.overlap.step import graph
from syntony.overlap.step.op import Kind
from syntony.trainer.config import Model
from syntony.trainer.model.layer import Layer, Move, Segment, Transfer, Use
from syntony.trainer.parallel.mesh import Mesh


@dataclass(frozen=True)
class Sizes(Transfer):
    """To every rank: how many rows its experts will get."""

    bytes: int

    @property
    def planned(self) -> graph.CommSpec:
        return graph.CommSpec("sizes", "ep", Kind.ALL_TO_ALL, None, self.bytes, parts="")

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return Move(x, torch.empty_like(x))

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        raise AssertionError("numbers of rows have no gradient")


@dataclass(frozen=True)
class Rows(Transfer):
    """Rows to the ranks of their experts, or (`back`) the answers to where the rows came from. `kept`: going, coming.

    bytes    where the experts are used evenly
    """

    name: str
    ranks: int
    experts: int  # of a rank
    bytes: int
    back: bool

    @property
    def planned(self) -> graph.CommSpec:
        return graph.CommSpec(self.name, "ep", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, self.bytes, "experts", self.experts)

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

    @property
    def planned(self) -> graph.CommSpec:
        return graph.CommSpec(self.name, "ep", None, None, 0, parts="")


def expert_parallel(
    layers: list[Layer],
    model: Model,
    mesh: Mesh,
    tokens: int,
    element: int,
    even: bool = False,
    hot: int = 0,
) -> list[Layer]:
    """The layers as rank `mesh.place["ep"]` has them: its share of every block's experts.

    tokens, element    tokens of a microbatch on one rank, and bytes of an element
    even               every rank's tokens go to the experts alike
    hot                so many experts of every block, the first, come to the rows; the others are spread
    """
    ranks, rank = mesh.size("ep"), mesh.place["ep"]
    if ranks == 1:
        return layers
    if model.experts % ranks:
        raise UserError(f"[parallel] ep is {ranks}; it must divide [model] experts, which is {model.experts}")
    spread = model.experts - hot
    if spread < 0 or spread % ranks:
        raise UserError(
            f"the plan has {hot} of {model.experts} experts come to the tokens; of the others each of ep={ranks} ranks "
            "must keep as many"
        )
    local = spread // ranks
    size = tokens * model.top * model.width * element * spread // model.experts
    gaps: tuple[Transfer | None, ...] = (None if even else Still("sizes"), Still("dispatch"), Still("combine"))
    if spread:
        ways = (Rows("dispatch", ranks, local, size, False), Rows("combine", ranks, local, size, True))
        gaps = (None if even else Sizes(8 * spread), *ways)

    def mine(layer: Layer) -> Layer:
        near = tuple(replace(weight.block(0, 0, hot), branch=layer.name) for weight in layer.weights)
        weights = tuple(weight.block(0, hot + rank * local, local) for weight in layer.weights)
        shadow = Layer(layer.name.replace("experts", "shadow"), near, (), ()) if hot else None
        if even and spread:
            layer = layer.with_segment(0, _known(layer.segments[0], ranks, rank))
        layer = replace(layer, weights=weights if spread else (), shadow=shadow, expert=True, sources=ranks)
        return replace(layer, gaps=(*gaps, layer.gaps[-1]))

    return [mine(layer) if layer.name.startswith("experts") else layer for layer in layers]


def _known(arrange: Segment, ranks: int, rank: int) -> Segment:
    """What `sizes` would bring, without it: all ranks send this one as many rows as it sends itself."""

    def run(use: Use, *tensors: Tensor) -> tuple[Tensor, ...]:
        counts, *rest = arrange.run(use, *tensors)
        return counts.view(ranks, -1)[rank].repeat(ranks), *rest

    return replace(arrange, run=run)

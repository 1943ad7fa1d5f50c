"""The communication of tensor parallelism and its adjoint: sums or, with sequence parallelism, the halves of sums.

    plain       x ----------> branch ---all_reduce----> + x        gradients: all_reduce at the entrance
    sequence    x all_gather> branch -reduce_scatter--> + x        gradients: reduce_scatter at the entrance,
                                                                   all_gather at the exit
Plain: f and g of Shoeybi et al., Megatron-LM (2019), section 3. Sequence: Korthikanti et al. (2022), section 4.2.2; the
same number of bytes, and activations between branches are sharded along the sequence. Tensors are (rows, length, ..).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syntony.trainer.model.layer import Move, Transfer


def summed(x: Tensor) -> Move:
    """In place, over the ranks."""
    x = x.contiguous()
    return Move(x, x)


def gathered(x: Tensor, ranks: int, axis: int = 1) -> Move:
    """Gathers every rank's part of the sequence, or of another axis."""
    x = x.contiguous()
    return Move(x, x.new_empty(ranks * len(x), *x.shape[1:]), lambda parts: torch.cat(parts.chunk(ranks), axis))


def scattered(x: Tensor, ranks: int, axis: int = 1) -> Move:
    """Sums over the ranks, each of which gets its part of the sequence, or of another axis."""
    parts = torch.cat(x.chunk(ranks, axis))
    return Move(parts, parts.new_empty(len(x), *parts.shape[1:]))


@dataclass(frozen=True)
class Enter(Transfer):
    """The entrance of a branch of which every rank computes a part: all get the whole input; gradients are summed."""

    name: str
    ranks: int
    sequence: bool

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return gathered(x, self.ranks)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return scattered(gradient, self.ranks) if self.sequence else summed(gradient)


@dataclass(frozen=True)
class Still(Transfer):
    """No communication. The two sides may be cut differently."""

    name: str


@dataclass(frozen=True)
class Leave(Transfer):
    """The exit of a branch: every rank has a part of the sum."""

    name: str
    ranks: int
    sequence: bool

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return scattered(x, self.ranks) if self.sequence else summed(x)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return gathered(gradient, self.ranks)

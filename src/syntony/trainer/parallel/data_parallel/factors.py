"""Gradients of a layer that travel as their factors: x and dy of matrices; vectors' gradients themselves.

    a microbatch's row    [ x | dy | x | dy | .. | vector | .. ]      bytes, each part at a multiple of 64
    of this rank          rows of its microbatches           ─▶ all_gather ─▶ of all ranks, by global microbatch index

Each rank then computes the gradient of every microbatch, and adds them in the same tree as one process (tree.py).
Zhang et al., Poseidon (USENIX ATC 2017), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from syntony.trainer.model.layer import Product, Weight
from syntony.trainer.parallel.data_parallel.leaf import Leaf

_ALIGNMENT = 64  # bytes
_WHOLE = torch.float32  # of a vector's gradient


@dataclass(frozen=True)
class Form:
    """The layout of a row: name, offset, shape and type of each part; a matrix has two parts with its name.

    bytes    of a row
    """

    parts: tuple[tuple[str, int, tuple[int, ...], torch.dtype], ...]
    bytes: int

    @classmethod
    def of(cls, weights: Sequence[Weight], rows: int, dtype: torch.dtype) -> Form:
        """rows, dtype: of every product's factors."""
        parts, end = list[tuple[str, int, tuple[int, ...], torch.dtype]](), 0
        for weight in sorted(weights, key=lambda weight: not weight.is_matrix):
            inputs, outputs = weight.shape[-1], weight.elements // weight.shape[-1]
            shapes = ((rows, inputs), (rows, outputs)) if weight.is_matrix else (weight.shape,)
            for shape in shapes:
                kind = dtype if weight.is_matrix else _WHOLE
                parts.append((weight.name, end, shape, kind))
                end += -(-torch.Size(shape).numel() * kind.itemsize // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(parts), end)

    def views(self, row: Tensor) -> Mapping[str, list[Tensor]]:
        """The parts of a row of bytes, by name: [x, dy], or [vector]."""
        found: dict[str, list[Tensor]] = {}
        for name, begin, shape, kind in self.parts:
            size = torch.Size(shape).numel() * kind.itemsize
            found.setdefault(name, []).append(row[begin : begin + size].view(kind).view(shape))
        return found


@dataclass
class Factors:
    """The factors of one layer: `mine` is sent to all ranks, whose rows are in `every`.

    products    by weight, one of this rank's, as a template for all others
    """

    form: Form
    mine: Tensor
    every: Tensor
    products: dict[str, Product] = field(default_factory=dict)

    @classmethod
    def of(cls, form: Form, microbatches: int, ranks: int) -> Factors:
        """With `microbatches` microbatches on each rank."""
        mine, every = (
            torch.zeros(count, form.bytes, dtype=torch.uint8) for count in (microbatches, ranks * microbatches)
        )
        return cls(form, mine, every)

    def gradients(self, index: int, views: Mapping[str, Tensor]) -> None:
        """Writes the gradients of one microbatch of any rank into tensors by name."""
        for name, parts in self.form.views(self.every[index]).items():
            if len(parts) == 1:
                views[name].copy_(parts[0])
            else:
                product = self.products.get(name) or Product(name, parts[0], parts[1])
                replace(product, x=parts[0], dy=parts[1]).into(views[name])


@dataclass
class FactorLeaf(Leaf):
    """A microbatch's factors, while they are collected."""

    keeps: ClassVar[bool] = True
    factors: Factors | None = None
    parts: Mapping[str, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def for_row(cls, factors: Factors, turn: int, ops: int) -> FactorLeaf:
        """For the rank's microbatch number `turn`; `ops` ops will contribute."""
        parts = factors.form.views(factors.mine[turn])
        vectors = {name: views[0] for name, views in parts.items() if len(views) == 1}
        return cls([], [vectors], ops, factors=factors, parts=parts)

    def multiply(self, product: Product) -> None:
        assert self.factors is not None
        parts = self.parts[product.weight]
        if len(parts) == 1:  # emulated computation also makes vectors' gradients this way
            product.into(parts[0])
        else:
            self.factors.products[product.weight] = product
            product.factors_into(*parts)
        self.written.add((0, product.weight, None))

    def finish(self) -> None:
        """Zeroes everything without a contribution."""
        for part in self._unwritten():
            part.zero_()

    def _unwritten(self) -> Iterator[Tensor]:
        for name, views in self.parts.items():
            if (0, name, None) not in self.written:
                yield from views

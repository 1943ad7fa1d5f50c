"""Gradients of one layer from one microbatch, while they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from syntony.trainer.model.layer import Join, Product
from syntony.trainer.parallel.data_parallel.tree import Tree


@dataclass
class Leaf:
    """Where they are computed, and where they are added up.

    views    of each source by name
    ops      number of ops that will still contribute
    sums     trees that take them: the index of the leaf, and the buffer of the views
    pieces   by segment: products of pieces of the same rows, by number of the piece
    keeps    whether it takes only products of all rows together
    """

    keeps: ClassVar[bool] = False

    sums: list[tuple[Tree, int, Tensor]]
    views: list[dict[str, Tensor]]
    ops: int
    pieces: dict[int, dict[int, Sequence[Product]]] = field(default_factory=dict)
    written: set[tuple[int, str, int | None]] = field(default_factory=set)

    def write(self, name: str, gradient: Tensor) -> None:
        view = self.views[0][name]
        if (0, name, None) in self.written:
            view += gradient
        else:
            view.copy_(gradient)
        self.written.add((0, name, None))

    def multiply(self, product: Product) -> None:
        view, key = self.views[product.source][product.weight], (product.source, product.weight, product.block)
        if key in self.written:
            place = view if product.block is None else view[product.block]
            before = place.clone()
            product.into(view)
            place += before
        else:
            product.into(view)
        self.written.add(key)

    def multiply_pieces(
        self, segment: int, number: int, count: int, products: Sequence[Product], join: Join = torch.cat
    ) -> None:
        """Products of one of `count` pieces of a segment's rows, computed once all are there, like those of all rows.

        join    assembles one tensor from all pieces
        """
        pieces = self.pieces.setdefault(segment, {})
        pieces[number] = products
        if len(pieces) == count:
            del self.pieces[segment]
            alike: dict[tuple[str, int | None, int], list[Product]] = {}
            for product in (each for at in sorted(pieces) for each in pieces[at]):
                alike.setdefault((product.weight, product.block, product.source), []).append(product)
            for every in alike.values():
                self.multiply(every[0].with_rows_of(every, join) if len(every) > 1 else every[0])

    def finish(self) -> None:
        """Zeroes everything without a contribution."""
        for source, views in enumerate(self.views):
            for name, view in views.items():
                if (source, name, None) in self.written:
                    continue
                blocks = {block for at, what, block in self.written if (at, what) == (source, name)}
                for block in range(len(view)) if blocks else ():
                    if block not in blocks:
                        view[block].zero_()
                if not blocks:
                    view.zero_()

"""Gradients of one layer from one microbatch, while they are being made."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from syntony.trainer.model.layer import Product
from syntony.trainer.parallel.data_parallel.tree import Tree


@dataclass
class Leaf:
    """Where they are made, and where they are added up.

    views    of each source by name
    ops      that will still make gradients
    sums     trees that take them: at which leaf, and the buffer that the views lie in
    """

    sums: list[tuple[Tree, int, Tensor]]
    views: list[dict[str, Tensor]]
    ops: int
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

    def finish(self) -> None:
        """What nothing contributed to is 0."""
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
